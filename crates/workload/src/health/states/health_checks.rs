//! The health checks of the policies of releases. The states of objects result from them, so they have to be known when an object
//! is read: only its state is kept.

use std::{collections::HashMap, sync::Arc};

use chandler_core::{
    health::{Check, HealthChecks},
    identity::ReleaseId,
};
use jiff::Timestamp;

use super::{Fingerprints, Listed, States};
use crate::health::kind::ObjectKind;

/// The versions at which the health checks for the objects of a kind have changed. What was read at an older version may result
/// from other checks.
#[derive(Debug, Default)]
pub struct CheckChanges {
    /// The version from which on objects of any release can be read.
    all: u64,
    /// The version of the last change for a release, if it is newer than the last list.
    releases: HashMap<ReleaseId, u64>,
}

impl CheckChanges {
    pub fn new(version: u64) -> Self {
        Self { all: version, releases: HashMap::new() }
    }

    /// Returns whether nothing that was read at a version counts.
    pub fn has_all_changed(&self, read: u64) -> bool {
        read < self.all
    }

    /// Returns whether an object of a release that was read at a version has to be read again.
    pub fn has_changed(&self, release: Option<&ReleaseId>, read: u64) -> bool {
        let changed = release.and_then(|release| self.releases.get(release));
        self.has_all_changed(read) || changed.is_some_and(|changed| read < *changed)
    }

    /// Takes in a list that has begun at a version.
    pub fn listed(&mut self, begun: u64) {
        self.releases.retain(|_, changed| begun < *changed);
    }

    fn forget(&mut self, release: &ReleaseId, had_check: bool, version: u64) {
        if self.releases.remove(release).is_some() || had_check {
            self.all = version;
        }
    }
}

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
        self.checks_version += 1;
        let mut outdated = Vec::new();
        for (kind, states) in &mut self.kinds {
            let [before, now] = [&before, checks].map(|all| all.find(&kind.api_version, &kind.kind));
            if before == now {
                continue;
            }
            // A list that has begun is repeated if it shows objects of the release.
            states.check_changes.releases.insert(release.clone(), self.checks_version);
            let mut has_objects = false;
            for entry in states.objects.values_mut().filter(|entry| entry.release.as_deref() == Some(release))
            {
                entry.is_outdated = true;
                has_objects = true;
            }
            if has_objects {
                outdated.push(kind.clone());
            }
        }
        self.list_again(outdated)
    }

    /// Forgets the checks of a release. A list that has begun with them is repeated.
    pub fn forget_checks(&mut self, release: &ReleaseId) {
        let checks = self.checks.remove(release).unwrap_or_default();
        self.checks_version += 1;
        for (kind, states) in &mut self.kinds {
            let had_check = checks.find(&kind.api_version, &kind.kind).is_some();
            states.check_changes.forget(release, had_check, self.checks_version);
        }
    }

    /// Returns the check for objects of a kind that belong to this release.
    pub fn check(&self, kind: &ObjectKind, release: Option<&ReleaseId>) -> Option<Arc<Check>> {
        self.checks.get(release?)?.find(&kind.api_version, &kind.kind).cloned()
    }

    /// Returns the version of the checks with which objects are read now.
    pub fn checks_version(&self) -> u64 {
        self.checks_version
    }

    /// Begins a list of a kind.
    pub fn begin_list(&self, kind: &ObjectKind) -> Listed {
        let fingerprints = self.is_fingerprinted(kind).then(Fingerprints::new);
        let began = Some(Timestamp::now());
        Listed { checks_version: self.checks_version, fingerprints, began, ..Listed::default() }
    }
}
