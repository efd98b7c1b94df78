//! Rolls changes out: decides which of the composed release objects are written now.

mod updates;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use chandler_api::{
    extensions::ROLLOUT_ANNOTATION,
    status::{PlacementStatus, RolloutState, RolloutStatus},
};
use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    placement::{PlacementKind, Selection},
    policy::PolicyState,
    poll::Poll,
    release::{ReleaseKind, Strategy},
    rollout::{
        self, ChangeKind, Member, MemberRules, MemberState, RolloutPlan, RolloutRecord, RolloutRequests,
        RolloutSettings, RolloutTarget, TargetState, active_at, change_kind, member_state, next_record,
        observed_record, plan, running_targets, settle, target_of,
    },
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{Composition, Reconciler, Releases, WRITES, by_cluster};
use crate::{
    ReconcileError, clusters,
    placement::{ComposeError, ComposedRelease, pending::ReconcileScope, rollout_targets::ComposedTargets},
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
    On(RolloutSettings),
}

/// The release objects of a reconcile.
pub(super) struct ToWrite<P: PlacementKind> {
    /// `None` means that the existing object is left unchanged.
    pub desired: ClusterMap<Option<P::Release>>,
    pub existing: Releases<P>,
    /// Clusters whose release object could not be composed when it was to be written.
    pub failing: ClusterMap<ComposeError>,
}

/// A plan, and the clusters whose release objects show what others are updated to.
struct Planned {
    plan: RolloutPlan,
    targets: ClusterMap<RolloutTarget>,
    /// The clusters whose package is used for clusters that are still updated to an earlier one.
    package_donors: ClusterMap<ClusterKey>,
    /// What has to be recorded on release objects.
    records: ClusterMap<RolloutRecord>,
}

/// The composed release objects of some clusters. `None` means that there is none.
type ComposedObjects<P> = ClusterMap<Option<ComposedRelease<<P as PlacementKind>::Release>>>;

/// A composed release object that needs no rollout.
struct Unheld<R> {
    composed: ComposedRelease<R>,
    target: RolloutTarget,
    kind: ChangeKind,
}

/// The release objects that need no rollout. `None` means that the existing object is left unchanged for now.
type UnheldObjects<P> = ClusterMap<Option<Unheld<<P as PlacementKind>::Release>>>;

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
            PolicyState::Known { policy, .. } => match policy.rollout.as_ref().map(RolloutSettings::parse) {
                None => RolloutMode::Off,
                Some(Ok(settings)) => RolloutMode::On(settings),
                Some(Err(error)) => {
                    let problem = format!("the rollout of its policy is invalid: {error}");
                    RolloutMode::Held { problem: Some(problem) }
                }
            },
        }
    }

    /// Returns the release objects to write: those that need not wait, and those whose turn it is, also outside of `scope`. `None`
    /// means that those of all clusters have to be composed: what they share has changed, and it may not be the turn of these.
    pub(super) async fn roll_out(
        &self,
        reference: &ObjectRef<P>,
        selection: &Selection,
        scope: &ReconcileScope,
        mode: &RolloutMode,
        composition: Composition<P>,
        existing: &[Arc<P::Release>],
    ) -> Result<Option<ToWrite<P>>, ReconcileError> {
        let Composition { mut objects, mut failing, pending } = composition;
        if matches!(mode, RolloutMode::Off) {
            self.context.rollout_targets.forget(reference);
            self.forget_replaced().await?;
            let desired = objects.into_iter().map(|(key, one)| (key, one.map(|one| one.object))).collect();
            return Ok(Some(ToWrite { desired, existing: existing.to_vec(), failing }));
        }
        let (all, _) = self.existing(reference, &ReconcileScope::All);
        let mut all = by_cluster::<P>(&all);
        self.pin_versions(&mut objects, &all, None).await;
        let (unheld, mut targets) = self.classify(objects, &all);
        if *scope != ReconcileScope::All && self.context.rollout_targets.have_changed(reference, &targets) {
            return Ok(None);
        }
        targets.missing = self.missing_targets(&targets, &unheld, &failing, &pending);
        self.context
            .rollout_targets
            .update(reference, scope, targets, |key| self.is_selected(selection, key));
        let is_throttled =
            *scope == ReconcileScope::status() && self.context.throttle.count_delay(reference).is_some();
        let planned = match mode {
            RolloutMode::On(settings) if !is_throttled => {
                Some(self.planned(reference, settings, selection, &all))
            }
            _ => None,
        };
        let mut existing = existing.to_vec();
        if let Some(planned) = &planned {
            // Before anything else is written, so that no failure is forgotten.
            let recorded = self.write_records(reference, &planned.records, &all).await;
            for release in &mut existing {
                let written = P::cluster_of(release).and_then(|key| recorded.get(&key));
                let written = written.filter(|written| written.name_any() == release.name_any());
                *release = written.unwrap_or(release).clone();
            }
            all.extend(recorded);
        }
        let (mut desired, failed) = self.write_postponed_values(reference, mode, unheld, &all).await?;
        failing.extend(failed);
        if let Some(planned) = planned {
            let (updates, failed) = self.compose_updates(reference, planned, &all).await?;
            failing.extend(failed);
            self.record_replaced(reference, selection, &updates, &all).await?;
            let is_listed: HashSet<_> =
                existing.iter().filter_map(|release| P::cluster_of(release)).collect();
            for (key, object) in updates {
                existing.extend(all.get(&key).filter(|_| !is_listed.contains(&key)).cloned());
                desired.insert(key, Some(object));
            }
        }
        Ok(Some(ToWrite { desired, existing, failing }))
    }

    fn is_selected(&self, selection: &Selection, key: &ClusterKey) -> bool {
        let cluster = self.context.clusters.get(key);
        cluster.is_some_and(|cluster| selection.matches(&key.name, cluster.labels()))
    }

    /// Separates the release objects that need no rollout from the others, and returns the targets of all.
    fn classify(
        &self,
        objects: ComposedObjects<P>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> (UnheldObjects<P>, ComposedTargets) {
        let (mut unheld, mut targets) = (ClusterMap::new(), ComposedTargets::default());
        for (key, one) in objects {
            let object = one.and_then(|composed| {
                let target = self.target(&composed);
                let kind = change_kind::<P>(all.get(&key).map(AsRef::as_ref), &composed.object, &target);
                targets.of_clusters.insert(key.clone(), target.clone());
                if kind == ChangeKind::Shared {
                    return None;
                }
                targets.current.insert(key.clone());
                Some(Unheld { composed, target, kind })
            });
            unheld.insert(key, object);
        }
        (unheld, targets)
    }

    /// Returns the clusters that have no target although they are not paused and no user has to change something, and whether
    /// they will have one soon.
    fn missing_targets(
        &self,
        targets: &ComposedTargets,
        unheld: &UnheldObjects<P>,
        failing: &ClusterMap<ComposeError>,
        pending: &BTreeSet<ClusterKey>,
    ) -> ClusterMap<bool> {
        let missing = unheld.keys().filter(|key| !targets.of_clusters.contains_key(*key));
        let missing = missing.filter(|key| {
            let cluster = self.context.clusters.get(key);
            cluster.is_some_and(|cluster| !clusters::is_paused_or_deleting(&cluster))
        });
        let missing = missing.filter_map(|key| match failing.get(key) {
            Some(error) => error.is_transient().then(|| (key.clone(), true)),
            None => Some((key.clone(), pending.contains(key))),
        });
        missing.collect()
    }

    /// Returns the release objects that need no rollout, after the Secrets with their values are written. Also returns why that
    /// failed for some.
    async fn write_postponed_values(
        &self,
        reference: &ObjectRef<P>,
        mode: &RolloutMode,
        unheld: UnheldObjects<P>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(ClusterMap<Option<P::Release>>, ClusterMap<ComposeError>), ReconcileError> {
        let (now, replaced) = (Timestamp::now(), self.replaced(reference));
        let record = |key: &ClusterKey, object, kind, target: &RolloutTarget| {
            let there = all.get(key).map(AsRef::as_ref);
            let record = next_record(kind, there, target, now);
            let is_first = kind == ChangeKind::FirstInstall;
            let record = if is_first { replaced.first_record(&key.name, record) } else { record };
            with_record(object, mode, there, &record)
        };
        let (mut desired, mut postponed) = (ClusterMap::new(), ClusterMap::new());
        for (key, one) in unheld {
            let object = one.and_then(|Unheld { composed, target, kind }| {
                if composed.unwritten_values.is_some() {
                    postponed.insert(key.clone(), (kind, target));
                    return None;
                }
                Some(record(&key, composed.object, kind, &target))
            });
            desired.insert(key, object);
        }
        let Composition { objects, failing, .. } =
            self.compose_again(postponed.keys().cloned().collect(), None, all).await?;
        for (key, one) in objects {
            let (Some(one), Some((kind, expected))) = (one, postponed.get(&key)) else { continue };
            let target = self.target(&one);
            if !target.is_same_update(expected) {
                // Something has changed meanwhile.
                self.context.queue.enqueue(reference.clone(), &ReconcileScope::All);
                continue;
            }
            let object = record(&key, one.object, *kind, &target);
            desired.insert(key, Some(object));
        }
        Ok((desired, failing))
    }

    /// Writes records to release objects. Returns the written objects. What cannot be written is tried again by the next
    /// reconcile.
    async fn write_records(
        &self,
        reference: &ObjectRef<P>,
        records: &ClusterMap<RolloutRecord>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> ClusterMap<Arc<P::Release>> {
        let api: Api<P::Release> = self.release_api();
        let writes = records.iter().filter_map(|(key, record)| {
            let (name, text) = (all.get(key)?.name_any(), record.to_annotation()?);
            let api = &api;
            Some(async move {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {ROLLOUT_ANNOTATION: text}}}));
                let written = api.patch(&name, &PatchParams::default(), &patch).await;
                let failed = |error| tracing::warn!(%error, name, "cannot record the state of a rollout");
                written.map_err(failed).ok().map(|written| (key.clone(), Arc::new(written)))
            })
        });
        let written = stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES);
        let written: ClusterMap<_> = written.filter_map(std::future::ready).collect().await;
        for release in written.values() {
            self.context.written.record(reference, P::Release::clone(release));
        }
        written
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
        settings: &RolloutSettings,
        selection: &Selection,
        releases: &ClusterMap<Arc<P::Release>>,
    ) -> Planned {
        let requests = RolloutRequests::of(&*self.object);
        let known = self.context.rollout_targets.get(reference);
        let selected = self.selected(selection, &ReconcileScope::All);
        let replaced = self.replaced(reference);
        let plan_for = |targets: &ClusterMap<RolloutTarget>| {
            let rules = self.member_rules(settings, &requests);
            let updates: BTreeMap<_, _> =
                targets.values().map(|target| (target.update_key(), target)).collect();
            let mut members = Vec::new();
            for (cluster, object) in &selected {
                let is_deleting = object.metadata.deletion_timestamp.is_some();
                let replacing = replaced.state(&cluster.name, &rules).filter(|_| !is_deleting);
                let Some(release) = releases.get(cluster) else {
                    let state = replacing;
                    let (labels, target) = (object.labels(), targets.get(cluster));
                    members.extend(state.map(|state| Member {
                        cluster,
                        labels,
                        target,
                        state,
                        active_at: None,
                    }));
                    continue;
                };
                let shared = || {
                    let of_release = target_of(&**release)?;
                    updates.get(&of_release.update_key()).copied()
                };
                let target = match targets.get(cluster) {
                    // What is being deleted is no reason to wait or to stop.
                    _ if is_deleting => TargetState::Paused(None),
                    _ if clusters::is_paused_or_deleting(object) => TargetState::Paused(shared()),
                    Some(target) => TargetState::Known(target),
                    None if known.unknown.contains(cluster) => TargetState::Unknown(shared()),
                    None => TargetState::Paused(shared()),
                };
                let replacing = replacing.filter(|_| release.meta().deletion_timestamp.is_some());
                let state = match replacing.unwrap_or_else(|| member_state(&**release, target, &rules)) {
                    MemberState::Outdated if known.current.contains(cluster) => MemberState::Current,
                    state => state,
                };
                let (labels, target, active_at) = (object.labels(), target.known(), active_at(&**release));
                members.push(Member { cluster, labels, target, state, active_at });
            }
            settle(settings, &mut members, &requests, rules.now);
            let records = members.iter().filter_map(|member| {
                // Objects of paused Clusters are left unchanged.
                selected.get(member.cluster).filter(|object| !clusters::is_paused_or_deleting(object))?;
                let record = observed_record(&**releases.get(member.cluster)?, member.state, rules.now)?;
                Some((member.cluster.clone(), record))
            });
            (plan(settings, &members, &requests, rules.now), records.collect())
        };
        let mut running = running_targets(
            &known.of_clusters,
            releases.iter().map(|(cluster, release)| (cluster, &**release)),
        );
        running.retain(|_, (target, _)| known.abandoned.as_ref() != Some(&target.package));
        if !running.is_empty() {
            let mut targets = known.of_clusters.clone();
            targets.extend(running.iter().map(|(cluster, (target, _))| (cluster.clone(), target.clone())));
            let (plan, records) = plan_for(&targets);
            let unfinished = [RolloutState::Progressing, RolloutState::Soaking, RolloutState::Paused];
            if unfinished.contains(&plan.status.state) {
                let package_donors =
                    running.into_iter().map(|(cluster, (_, donor))| (cluster, donor)).collect();
                return Planned { plan, targets, package_donors, records };
            }
        }
        let (plan, records) = plan_for(&known.of_clusters);
        Planned { plan, targets: known.of_clusters, package_donors: ClusterMap::new(), records }
    }

    fn member_rules(&self, settings: &RolloutSettings, requests: &RolloutRequests) -> MemberRules {
        MemberRules {
            timeout: settings.timeout,
            min_ready: settings.min_ready,
            observes_health: self.context.health
                && self.context.policies.of(&*self.object).observes_health(false),
            resumed_at: requests.resumed_at,
            now: Timestamp::now(),
        }
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
}

/// Returns a release object with its record. While the policy does not exist, only an object that had one has one.
fn with_record<R: ReleaseKind>(
    mut object: R,
    mode: &RolloutMode,
    existing: Option<&R>,
    record: &RolloutRecord,
) -> R {
    let was_rolled_out = record.from.is_some() || existing.and_then(RolloutRecord::of).is_some();
    if matches!(mode, RolloutMode::On(_)) || was_rolled_out {
        record.set(&mut object);
    }
    object
}
