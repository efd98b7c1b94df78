//! Rolls changes out: decides which of the composed release objects are written now.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use chandler_api::status::{PlacementStatus, RolloutState, RolloutStatus};
use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    placement::{PlacementKind, Selection},
    policy::PolicyState,
    poll::Poll,
    release::{ReleaseKind, Strategy},
    rollout::{
        self, ChangeKind, Mark, Member, MemberState, Requests, RolloutPlan, Settings, Target, change_kind,
        member_state, next_mark, plan, running_targets, shared_digest,
    },
};
use jiff::Timestamp;
use kube::{Resource, ResourceExt as _, core::NamespaceResourceScope, runtime::reflector::ObjectRef};

use super::{Reconciler, Releases, by_cluster};
use crate::{
    ReconcileError, clusters,
    placement::{ComposeError, ComposeMode, ComposedRelease, pending::ReconcileScope},
};

/// How changes reach the clusters of a placement.
pub(super) enum RolloutMode {
    /// All at once.
    Off,
    /// Not at all, because it is not known how.
    Held {
        /// What users have to do, unless the releases report it.
        problem: Option<String>,
    },
    /// One after another.
    On(Settings),
}

/// The release objects of a reconcile.
pub(super) struct ToWrite<P: PlacementKind> {
    /// `None` means that the existing object is left unchanged.
    pub desired: ClusterMap<Option<P::Release>>,
    pub existing: Releases<P>,
    /// Clusters whose release object could not be composed when it was to be written.
    pub failing: ClusterMap<ComposeError>,
}

/// A plan, and the clusters whose release objects show what others move to.
struct Planned {
    plan: RolloutPlan,
    targets: ClusterMap<Target>,
    /// For clusters that still move to an earlier package.
    examples: ClusterMap<ClusterKey>,
}

/// The composed release objects of some clusters. `None` means that there is none.
type ComposedObjects<P> = ClusterMap<Option<ComposedRelease<<P as PlacementKind>::Release>>>;

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    pub(super) fn rollout_mode(&self) -> RolloutMode {
        if self.object.policy().is_none() || self.object.strategy() == Strategy::InstallOnce {
            return RolloutMode::Off;
        }
        match self.context.policies.of(&*self.object) {
            PolicyState::None => RolloutMode::Off,
            PolicyState::Missing(_) => RolloutMode::Held { problem: None },
            PolicyState::Known { policy, .. } => match policy.rollout.as_ref().map(Settings::parse) {
                None => RolloutMode::Off,
                Some(Ok(settings)) => RolloutMode::On(settings),
                Some(Err(error)) => {
                    let problem = format!("the rollout of its policy is invalid: {error}");
                    RolloutMode::Held { problem: Some(problem) }
                }
            },
        }
    }

    /// Returns the release objects to write: those of `composed` that need not wait, and those whose turn it is, also outside of
    /// `scope`.
    pub(super) async fn roll_out(
        &self,
        reference: &ObjectRef<P>,
        selection: &Selection,
        scope: &ReconcileScope,
        mode: &RolloutMode,
        mut composed: ComposedObjects<P>,
        existing: &[Arc<P::Release>],
    ) -> Result<ToWrite<P>, ReconcileError> {
        if matches!(mode, RolloutMode::Off) {
            self.context.rollouts.forget(reference);
            let desired = composed.into_iter().map(|(key, one)| (key, one.map(|one| one.object))).collect();
            return Ok(ToWrite { desired, existing: existing.to_vec(), failing: ClusterMap::new() });
        }
        let (all, _) = self.existing(reference, &ReconcileScope::All);
        let all = by_cluster::<P>(&all);
        self.pin_versions(&mut composed, &all, None).await;
        let now = Timestamp::now();
        let (mut desired, mut targets, mut unwritten) =
            (ClusterMap::new(), ClusterMap::new(), ClusterMap::new());
        let mut current = BTreeSet::new();
        for (key, one) in composed {
            let object = one.and_then(|one| {
                let target = self.target(&one);
                let there = all.get(&key).map(AsRef::as_ref);
                let kind = change_kind::<P>(there, &one.object, &target);
                targets.insert(key.clone(), target.clone());
                if kind != ChangeKind::Shared {
                    current.insert(key.clone());
                }
                if one.has_unwritten_values && kind != ChangeKind::Shared {
                    unwritten.insert(key.clone(), kind);
                    return None;
                }
                (kind != ChangeKind::Shared).then(|| marked(one.object, mode, kind, there, &target, now))
            });
            desired.insert(key, object);
        }
        let is_selected = |key: &ClusterKey| {
            self.context
                .clusters
                .get(key)
                .is_some_and(|cluster| selection.matches(&key.name, cluster.labels()))
        };
        self.context.rollouts.update(reference, scope, targets, current, is_selected);
        let mut existing = existing.to_vec();
        let (again, mut failing) =
            self.compose_again(unwritten.keys().cloned().collect(), None, &all).await?;
        for (key, one) in again {
            let (Some(one), Some(kind)) = (one, unwritten.get(&key)) else { continue };
            let (target, there) = (self.target(&one), all.get(&key).map(AsRef::as_ref));
            desired.insert(key, Some(marked(one.object, mode, *kind, there, &target, now)));
        }
        let is_throttled =
            *scope == ReconcileScope::status() && self.context.throttle.count_delay(reference).is_some();
        if let RolloutMode::On(settings) = mode
            && !is_throttled
        {
            let planned = self.planned(reference, settings, selection, &all);
            let (moves, failed) = self.moves(reference, planned, &all).await?;
            failing.extend(failed);
            let is_listed: HashSet<_> =
                existing.iter().filter_map(|release| P::cluster_of(release)).collect();
            for (key, object) in moves {
                existing.extend(all.get(&key).filter(|_| !is_listed.contains(&key)).cloned());
                desired.insert(key, Some(object));
            }
        }
        Ok(ToWrite { desired, existing, failing })
    }

    /// Returns how far the rollout is, and when that changes although nothing happens.
    pub(super) fn rollout_progress(
        &self,
        reference: &ObjectRef<P>,
        selection: &Selection,
        releases: &ClusterMap<Arc<P::Release>>,
    ) -> (Option<RolloutStatus>, Option<Timestamp>) {
        match self.rollout_mode() {
            RolloutMode::Off | RolloutMode::Held { problem: None } => (None, None),
            RolloutMode::Held { problem: Some(message) } => {
                let status =
                    RolloutStatus { state: RolloutState::Paused, message, ..RolloutStatus::default() };
                (Some(status), None)
            }
            RolloutMode::On(settings) => {
                let plan = self.planned(reference, &settings, selection, releases).plan;
                (Some(plan.status), plan.recheck_at)
            }
        }
    }

    /// Plans the rollout. Newer packages wait until the rollout of an earlier one has ended or stopped.
    fn planned(
        &self,
        reference: &ObjectRef<P>,
        settings: &Settings,
        selection: &Selection,
        releases: &ClusterMap<Arc<P::Release>>,
    ) -> Planned {
        let requests = Requests::of(&*self.object);
        let known = self.context.rollouts.get(reference);
        let selected = self.selected(selection, &ReconcileScope::All);
        let plan_for = |targets: &ClusterMap<Target>| {
            let now = Timestamp::now();
            let members: Vec<_> = selected
                .iter()
                .filter_map(|(cluster, object)| {
                    let release = releases.get(cluster)?;
                    let target = targets.get(cluster).filter(|_| !clusters::is_paused_or_deleting(object));
                    let state = match member_state(&**release, target, settings.timeout, now) {
                        MemberState::Outdated if known.current.contains(cluster) => MemberState::Current,
                        state => state,
                    };
                    Some(Member { cluster, labels: object.labels(), target, state })
                })
                .collect();
            plan(settings, &members, &requests, now)
        };
        let mut running = running_targets(
            &known.of_clusters,
            releases.iter().map(|(cluster, release)| (cluster, &**release)),
        );
        running.retain(|_, (target, _)| known.abandoned.as_ref() != Some(&target.package));
        if !running.is_empty() {
            let mut targets = known.of_clusters.clone();
            targets.extend(running.iter().map(|(cluster, (target, _))| (cluster.clone(), target.clone())));
            let plan = plan_for(&targets);
            let unfinished = [RolloutState::Progressing, RolloutState::Soaking, RolloutState::Paused];
            if unfinished.contains(&plan.status.state) {
                let examples =
                    running.into_iter().map(|(cluster, (_, example))| (cluster, example)).collect();
                return Planned { plan, targets, examples };
            }
        }
        let plan = plan_for(&known.of_clusters);
        Planned { plan, targets: known.of_clusters, examples: ClusterMap::new() }
    }

    /// Composes the release objects of the clusters whose turn it is. Also returns why that failed for some.
    async fn moves(
        &self,
        reference: &ObjectRef<P>,
        planned: Planned,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(ClusterMap<P::Release>, ClusterMap<ComposeError>), ReconcileError> {
        let Planned { plan, targets, examples } = planned;
        let mut groups: BTreeMap<Option<&ClusterKey>, BTreeSet<ClusterKey>> = BTreeMap::new();
        for cluster in plan.may_move {
            groups.entry(examples.get(&cluster)).or_default().insert(cluster);
        }
        let (mut moves, mut failing) = (ClusterMap::new(), ClusterMap::new());
        for (example, clusters) in groups {
            let running = example.and_then(|example| all.get(example)).map(AsRef::as_ref);
            let (composed, failed) = self.compose_again(clusters, running, all).await?;
            failing.extend(failed);
            for (key, one) in composed {
                let (Some(one), Some(wanted)) = (one, targets.get(&key)) else { continue };
                let target = self.target(&one);
                if target.package != wanted.package || target.spec != wanted.spec {
                    // Something has changed meanwhile, or the earlier package is not available any more.
                    if running.is_some() {
                        self.context.rollouts.abandon(reference, &wanted.package);
                    }
                    self.context.queue.enqueue(reference.clone(), &ReconcileScope::All);
                    continue;
                }
                let there = all.get(&key).map(AsRef::as_ref);
                let mut object = one.object;
                next_mark(ChangeKind::Shared, there, &target, Timestamp::now()).set(&mut object);
                moves.insert(key, object);
            }
        }
        Ok((moves, failing))
    }

    /// Composes release objects that are written now, with the package of `running` if there is one. Also returns why that failed
    /// for some.
    async fn compose_again(
        &self,
        clusters: BTreeSet<ClusterKey>,
        running: Option<&P::Release>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(ComposedObjects<P>, ClusterMap<ComposeError>), ReconcileError> {
        let mode = ComposeMode { running, write_values: true };
        let selected =
            clusters.into_iter().filter_map(|key| Some((key.clone(), self.context.clusters.get(&key)?)));
        let (mut composed, failing) = self.desired(&selected.collect(), all, &mode).await?;
        self.pin_versions(&mut composed, all, running).await;
        Ok((composed, failing))
    }

    /// Returns when to look for a newer version, if rollouts of the placement follow the newest one: its release objects name the
    /// version that was found.
    pub(super) fn version_poll(&self, releases: &ClusterMap<Arc<P::Release>>) -> Option<Duration> {
        let follows = self.object.follows_newest_version() && !releases.is_empty();
        let is_on = follows && matches!(self.rollout_mode(), RolloutMode::On(_));
        let seed = self.object.uid().unwrap_or_default();
        is_on.then(|| Poll::new(self.context.poll_interval, &seed).wait(Timestamp::now()))
    }

    /// Publishes an Event when a rollout has ended, or stopped.
    pub(super) fn publish_rollout(&self, old: &PlacementStatus, new: &PlacementStatus) {
        let state = |status: &PlacementStatus| status.rollout.as_ref().map(|rollout| rollout.state);
        let (Some(before), Some(now)) = (state(old), new.rollout.as_ref()) else { return };
        let reason = rollout::condition(now, P::VOCABULARY).reason;
        match now.state {
            state if state == before => {}
            RolloutState::Done => self.context.events.normal(&*self.object, reason.as_str(), &now.message),
            RolloutState::Stopped | RolloutState::Aborted => {
                self.context.events.warning(&*self.object, reason.as_str(), &now.message);
            }
            RolloutState::Progressing | RolloutState::Soaking | RolloutState::Paused => {}
        }
    }

    /// Returns what a composed release object moves to.
    fn target(&self, composed: &ComposedRelease<P::Release>) -> Target {
        Target {
            spec: shared_digest(&self.object.shared_spec(), &composed.parameters),
            package: composed.object.package_key(),
            kubernetes: composed.kubernetes.clone(),
        }
    }

    /// Sets the version of release objects that follow the newest one: to that of `running`, or else to the newest. If it cannot
    /// be resolved, the version stays.
    async fn pin_versions(
        &self,
        composed: &mut ComposedObjects<P>,
        existing: &ClusterMap<Arc<P::Release>>,
        running: Option<&P::Release>,
    ) {
        let version_of = |release: &P::Release| release.desired().ok()?.package.version;
        let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (key, one) in composed {
            let Some(one) = one.as_mut().filter(|one| one.object.follows_newest_version()) else { continue };
            let Ok(desired) = one.object.desired() else { continue };
            let package = desired.package.to_string();
            let newest = match (running.and_then(version_of), known.get(&package)) {
                (Some(version), _) => Some(version),
                (None, Some(newest)) => newest.clone(),
                (None, None) => {
                    let newest = (self.context.newest_version)(desired).await;
                    let newest =
                        newest.map_err(|error| tracing::warn!(%error, %package, "keeping the version")).ok();
                    known.insert(package, newest.clone());
                    newest
                }
            };
            let version = newest.or_else(|| version_of(existing.get(key)?));
            if let Some(version) = version {
                one.object.set_version(&version);
            }
        }
    }
}

/// Returns a release object with its mark. While the policy does not exist, only an object that had one has one.
fn marked<R: ReleaseKind>(
    mut object: R,
    mode: &RolloutMode,
    kind: ChangeKind,
    existing: Option<&R>,
    target: &Target,
    now: Timestamp,
) -> R {
    if matches!(mode, RolloutMode::On(_)) || existing.and_then(Mark::of).is_some() {
        next_mark(kind, existing, target, now).set(&mut object);
    }
    object
}
