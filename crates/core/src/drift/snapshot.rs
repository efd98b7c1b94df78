//! What is compared: the objects of a revision under a policy, and what a watch has shown of them.

use chandler_api::{
    extensions::{DriftPolicy, FieldConflicts},
    status::{ObjectRecord, ObjectRecords},
};

use crate::digest::Digest;

/// What a watch has shown of an object, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fingerprint {
    /// Objects of its kind cannot be watched.
    Unwatched,
    /// The watch does not show it. It may exist without the label that the watch selects.
    Missing,
    /// It exists. Another number means that it may differ from its package.
    Seen(u64),
}

/// What the policy says about the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftRules {
    pub policy: DriftPolicy,
    pub conflicts: FieldConflicts,
}

/// The objects of a revision under a policy. If any of it changes, all objects are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonScope {
    pub revision: u32,
    pub rules: DriftRules,
    pub objects: ObjectRecords,
}

/// The objects of a revision, and what a watch has shown of each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub scope: ComparisonScope,
    /// In the order of the objects.
    pub fingerprints: Vec<Fingerprint>,
}

impl Snapshot {
    /// Returns the objects and what the watch has shown of each of them.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&ObjectRecord, Fingerprint)> {
        self.scope.objects.iter().zip(self.fingerprints.iter().copied())
    }

    /// Returns what the watch has shown of an object.
    pub(super) fn fingerprint(&self, object: &ObjectRecord) -> Option<Fingerprint> {
        self.objects().find(|(one, _)| *one == object).map(|(_, fingerprint)| fingerprint)
    }

    /// Returns the digest by which the snapshot is recognized after a restart.
    pub(super) fn digest(&self) -> String {
        let ComparisonScope { revision, rules: DriftRules { policy, conflicts }, .. } = &self.scope;
        let objects = self.objects().map(|(object, fingerprint)| {
            let ObjectRecord { api_version, kind, namespace, name } = object;
            format!("{api_version} {kind} {namespace}/{name} {fingerprint:?}")
        });
        let lines: Vec<_> =
            [format!("{revision} {policy:?} {conflicts:?}")].into_iter().chain(objects).collect();
        Digest::of(lines.join("\n")).hex()[..DIGITS].to_owned()
    }
}

/// Digits of the digest in the status.
const DIGITS: usize = 32;
