//! The health checks of the policies of releases. The states of objects result from them, so they have to be known when an object
//! is read: only its state is kept.

use std::{collections::BTreeSet, sync::Arc};

use chandler_core::{
    health::{Check, HealthChecks},
    identity::ReleaseId,
};

use super::{Progress, SharedKind, States};
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
        let check_of =
            |checks: &HealthChecks, kind: &ObjectKind| checks.find(&kind.api_version, &kind.kind).cloned();
        // Nothing is to be done for a kind of which no object of this release was read.
        let is_read = |states: &super::KindStates| {
            states.progress == Progress::Waiting
                || states.objects.values().any(|entry| entry.release.as_deref() == Some(release))
        };
        let changed = self
            .kinds
            .iter()
            .filter(|(kind, states)| check_of(&before, kind) != check_of(checks, kind) && is_read(states));
        let changed: Vec<SharedKind> = changed.map(|(kind, _)| kind.clone()).collect();
        let must_list = !changed.is_empty();
        self.to_list.extend(changed);
        must_list
    }

    /// Returns the check for objects of a kind that belong to this release.
    pub fn check(&self, kind: &ObjectKind, release: Option<&ReleaseId>) -> Option<Arc<Check>> {
        self.checks.get(release?)?.find(&kind.api_version, &kind.kind).cloned()
    }

    /// Returns the kinds whose objects have to be listed again, once.
    pub fn take_kinds_to_list(&mut self) -> BTreeSet<SharedKind> {
        std::mem::take(&mut self.to_list)
    }
}
