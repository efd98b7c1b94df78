//! The health checks of the policies of releases. The states of objects result from them, so they have to be known when an object
//! is read: only its state is kept.

use std::sync::Arc;

use chandler_core::{
    health::{Check, HealthChecks},
    identity::ReleaseId,
};

use super::{Listed, States};
use crate::health::kind::ObjectKind;

impl States {
    /// Sets the checks of a release. Returns whether objects have to be listed again because of it.
    pub fn set_checks(&mut self, release: &ReleaseId, checks: &HealthChecks) -> bool {
        let before = if checks.is_empty() {
            self.checks.remove(release)
        } else if self.checks.get(release) == Some(checks) {
            return false;
        } else {
            self.checks.insert(release.clone(), checks.clone())
        };
        let before = before.unwrap_or_default();
        let mut must_list = false;
        for (kind, states) in &mut self.kinds {
            let [before, now] = [&before, checks].map(|all| all.find(&kind.api_version, &kind.kind));
            if before == now {
                continue;
            }
            // A list that has begun is repeated.
            states.checks_version = states.checks_version.wrapping_add(1);
            if states.objects.values().any(|entry| entry.release.as_deref() == Some(release)) {
                states.is_outdated = true;
                self.to_list_again.insert(kind.clone());
                must_list = true;
            }
        }
        must_list
    }

    /// Returns the check for objects of a kind that belong to this release.
    pub fn check(&self, kind: &ObjectKind, release: Option<&ReleaseId>) -> Option<Arc<Check>> {
        self.checks.get(release?)?.find(&kind.api_version, &kind.kind).cloned()
    }

    /// Begins a list of a kind.
    pub fn begin_list(&self, kind: &ObjectKind) -> Listed {
        let checks_version = self.kinds.get(kind).map(|states| states.checks_version).unwrap_or_default();
        Listed { checks_version, ..Listed::default() }
    }
}
