//! The facts that are recorded about a sequence, on which the invariants are checked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{
    action::{ManagementCluster, ReleaseId},
    chart::Hook,
    model::Content,
};

/// The observed end state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndState {
    pub releases: BTreeMap<ReleaseId, ObservedRelease>,
}

/// A release on its workload cluster, and the objects that manage it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedRelease {
    /// The newest release record.
    pub newest: Option<Record>,
    /// The content of each object that exists. `None` for content that no chart of ours renders.
    pub objects: Vec<Option<Content>>,
    /// The HelmReleaseProxies or AddonReleases on both management clusters.
    pub release_objects: Vec<ReleaseObject>,
}

/// The newest release record of Helm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub revision: u32,
    pub status: String,
}

/// The status of a HelmReleaseProxy or an AddonRelease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseObject {
    pub management: ManagementCluster,
    /// The status of the condition `Ready`.
    pub ready: String,
    /// The status of the condition `Healthy`.
    pub healthy: String,
    /// Whether the status describes the current generation.
    pub is_current: bool,
    pub revision: Option<u32>,
}

/// What happened during a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The successful writes of Chandler to release records, in the order in which the API servers received them.
    pub record_writes: Vec<RecordWrite>,
    /// The revisions that any client has created, and the hooks that have run, in any order.
    pub revisions: Vec<RevisionEvent>,
    /// The releases of which Chandler has deleted an object. Objects of hooks do not count.
    pub removals: BTreeSet<ReleaseId>,
    /// When objects were moved to another management cluster: start and end.
    pub moves: Vec<(Timestamp, Timestamp)>,
    /// The drivers that were suspended with SIGSTOP at some time.
    pub suspended_drivers: BTreeSet<u32>,
}

/// A write to a release record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    pub release: ReleaseId,
    /// The driver, or `None` if it ended before its connection was identified.
    pub pid: Option<u32>,
    pub verb: String,
    pub at: Timestamp,
}

/// A step of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionEvent {
    pub release: ReleaseId,
    pub revision: u32,
    pub step: RevisionStep,
    /// The driver, or `None` for the helm CLI and for a driver that ended before its connection was identified.
    pub pid: Option<u32>,
    pub at: Timestamp,
}

/// What happened to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionStep {
    /// Its record was created.
    Created,
    /// The object of a hook was created.
    HookRan(Hook),
}
