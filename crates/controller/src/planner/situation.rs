//! What is known about a release without reading it from its cluster.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{capi::DELETE_FOR_MOVE_ANNOTATION, status::ReleaseStatus};
use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    release::{
        Claimant, Collision, Desired, InputState, InventoryState, Observed, PastFailure, ReleaseKind,
        RequestedRollback, Strategy, TestNeed, past_failure, retry_requested_at,
    },
    tenancy::Refusal,
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{
    clusters::ClusterFacts,
    locks::Mutex,
    release::{PlacementState, ReleaseContext, claimant},
    routing::ObjectKey,
    status,
};

type Claims = BTreeMap<(ClusterKey, ReleaseId), Vec<Claimant>>;

/// The releases that the planned objects claim. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PlannedClaims(Arc<Mutex<Claims>>);

impl PlannedClaims {
    /// Adds the claim of an object that would be created now, or that exists.
    pub fn add<R: ReleaseKind>(&self, object: &R) {
        let Ok(desired) = object.desired() else { return };
        let mut claim = claimant(object);
        claim.created = claim.created.or(Some(Timestamp::now()));
        let mut claims = self.0.lock();
        claims.entry((desired.cluster, desired.release)).or_default().push(claim);
    }

    fn of(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        let claims = self.0.lock();
        claims.get(&(cluster.clone(), release.clone())).cloned().unwrap_or_default()
    }
}

/// What is known about a release without reading it from its cluster.
pub struct Situation {
    pub state: PlacementState,
    pub facts: ClusterFacts,
    /// Whether the release stays on the cluster when its release object is deleted.
    pub orphan: bool,
    /// Whether it is managed from another management cluster.
    pub moved: bool,
    paused: bool,
    suspended: bool,
    retry_at: Option<Timestamp>,
    installed_before: bool,
    collision: Collision,
    unmet: Vec<String>,
    needed_by: Vec<String>,
    failure: Option<PastFailure>,
    strategy: Strategy,
    timeout: Duration,
    remove_with_cluster: bool,
    /// Why AddonTenancies do not let the release be changed.
    pub refused: Option<Refusal>,
    now: Timestamp,
}

impl Situation {
    /// Collects it from the caches. `object` is the stored release object, or the one that would be created, and `state` is that of
    /// its placement. It may take the release from `replaced`, which is removed first.
    pub fn new<R: ReleaseKind>(
        context: &ReleaseContext<R>,
        claims: &PlannedClaims,
        state: PlacementState,
        object: &R,
        desired: &Desired,
        replaced: Option<&R>,
    ) -> Self {
        let now = Timestamp::now();
        let facts = context.clusters.facts(&desired.cluster);
        let known = object.status().cloned().unwrap_or_default();
        let (unmet, needed_by) =
            context.dependencies(&ObjectKey::of(replaced.unwrap_or(object)), desired, facts.is_deleting());
        let planned = claims.of(&desired.cluster, &desired.release);
        let mut own = claimant(object);
        // A new object is younger than all stored ones, and than those that are planned before it.
        let created = planned.iter().find(|claim| claim.name == own.name).and_then(|claim| claim.created);
        own.created = own.created.or(created).or(Some(now));
        let mut claimants = context.all_kinds.claimants(&desired.cluster, &desired.release);
        claimants.extend(planned);
        let replaced = replaced.map(claimant);
        claimants.retain(|other| replaced.as_ref().is_none_or(|replaced| other.name != replaced.name));
        Self {
            orphan: state.orphans(object),
            moved: object.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION),
            paused: facts.paused || status::is_paused(object),
            suspended: state.suspends(object),
            retry_at: retry_requested_at(object),
            installed_before: object.was_installed(desired.strategy, &known, facts.uid.as_deref()),
            collision: Collision::among(&own, &claimants),
            unmet,
            needed_by,
            failure: past(&known, &object.uid().unwrap_or_default()),
            strategy: desired.strategy,
            timeout: desired.execution.timeout,
            remove_with_cluster: facts.waits_for_uninstalls(now) && desired.remove_with_cluster,
            refused: None,
            state,
            facts,
            now,
        }
    }

    /// Returns what the manager would observe. Drift and tests are not part of a plan. A requested rollback counts as possible:
    /// only the newest revision is read.
    pub fn observed<'a>(
        &'a self,
        inventory: InventoryState<'a>,
        inputs: InputState<'a>,
        requested_rollback: Option<&'a RequestedRollback>,
    ) -> Observed<'a> {
        let unchanged_since = match inventory {
            InventoryState::Known(newest) => newest.and_then(|newest| newest.updated),
            _ => None,
        };
        Observed {
            deleting: false,
            moved: self.moved,
            paused: self.paused,
            placement_paused: self.state.paused,
            placement_changing: false,
            suspended: self.suspended,
            policy_missing: self.state.policy.missing(),
            refused: self.refused.as_ref(),
            remediation: self.state.policy.effective().remediation,
            retry_at: self.retry_at,
            cluster: self.facts.state,
            strategy: self.strategy,
            collision: &self.collision,
            unmet: &self.unmet,
            needed_by: &self.needed_by,
            remove_with_cluster: self.remove_with_cluster,
            orphan: self.orphan,
            installed_before: self.installed_before,
            inventory,
            unchanged_since,
            timeout: self.timeout,
            inputs,
            operation: None,
            described: None,
            differs: None,
            rollback_to: requested_rollback.map(|request| request.revision),
            requested_rollback,
            compare: false,
            comparison_is_outdated: false,
            tests: TestNeed::None,
            absence_confirmed: true,
            failure: self.failure.as_ref(),
            now: self.now,
        }
    }
}

fn past(known: &ReleaseStatus, uid: &str) -> Option<PastFailure> {
    known.last_failure.as_ref().and_then(|last| past_failure(last, uid))
}
