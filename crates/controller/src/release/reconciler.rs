//! The reconciler of one release object.

mod annotations;
mod drift;
mod finalizer;
mod health;
mod installed;
mod outcome;
mod report;
mod start;
mod test_hooks;
mod uncached;
mod view;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{capi::DELETE_FOR_MOVE_ANNOTATION, status::ReleaseStatus};
use chandler_core::{
    digest::{InputDigest, InputMark},
    failure::{Category, Failure},
    inventory::{self, RevisionState},
    poll::Poll,
    release::{
        Collision, Desired, Findings, InFlight, InputState, InventoryState, Observed, OperationKind,
        PastFailure, Plan, ReleaseKind, RemoveFinalizer, TestNeed, Wait, failure_key, history,
        impossible_rollback, past_failure, plan, retry_requested_at,
    },
    tenancy::{Refusal, ReleaseUse},
};
use chandler_tool::ReleaseDetails;
use chandler_workload::InventoryView;
use jiff::Timestamp;
use kube::{
    ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

use self::{drift::DriftPlan, view::View};
use super::{
    Outcome, PlacementState, ReleaseContext, claimant,
    inputs::{Inputs, package_format},
    reconcile_state::{InputsKey, ReconcileState},
};
use crate::{
    ReconcileError, operations::NumberedOutcome, queue, queue::outside_of_limit, routing::ObjectKey, status,
};

/// How long the reported result of an operation takes precedence over the watch.
const CATCH_UP: Duration = Duration::from_secs(30);
/// How soon a release is reconciled again whose tool is unavailable.
const TOOL_RETRY: Duration = Duration::from_secs(15);
/// How soon a release is reconciled again that waits for its placement.
const PLACEMENT_RETRY: Duration = Duration::from_secs(1);
/// How soon a release is reconciled again that another label of its namespace may allow.
const LABEL_RETRY: Duration = Duration::from_mins(1);
/// How many plans one reconcile follows.
const ROUNDS: usize = 5;

pub struct Reconciler<R: ReleaseKind> {
    context: Arc<ReleaseContext<R>>,
    object: Arc<R>,
    uid: String,
    now: Timestamp,
    state: ReconcileState,
    placement: PlacementState,
    /// The revision that a rollback would restore.
    rollback_to: Option<RevisionState>,
    /// What is compared with the package.
    drift: DriftPlan,
    /// Why AddonTenancies do not let the release be changed.
    refused: Option<Refusal>,
    /// The inputs of the newest revision, if Chandler has created it.
    installed: Option<InputDigest>,
    /// Whether the newest revision is being uninstalled, or its uninstall was interrupted.
    uninstalling: bool,
    /// The status that was written last.
    written: ReleaseStatus,
    status: ReleaseStatus,
    /// Number of the operation whose outcome the status contains.
    outcome_number: Option<u64>,
    /// Whether an outcome is being taken in that an earlier reconcile has taken in, but did not write.
    outcome_is_repeated: bool,
}

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    pub fn begin(object: Arc<R>, context: Arc<ReleaseContext<R>>) -> Result<Self, ReconcileError> {
        let uid = object.uid().ok_or_else(|| ReconcileError::Incomplete {
            kind: status::kind::<R>(),
            name: object.name_any(),
            field: "uid",
        })?;
        let state = context.caches.reconcile_states.get(&uid);
        // The cache is read after the state: a status that was dropped because the watch shows it is in the cache by now.
        let newest = context.releases.by_reference(&ObjectRef::from_obj(&*object));
        let object = newest.filter(|newest| newest.uid().as_ref() == Some(&uid)).unwrap_or(object);
        let written = state.status.as_deref().or_else(|| object.status()).cloned().unwrap_or_default();
        let mut status = written.clone();
        if let Some((_, inputs)) = &state.inputs {
            // Known although the write of the status failed: the format of the package selects the tool.
            status.package = Some(inputs.package.clone());
            status.values = Some(inputs.values.clone());
            status.input_digest = Some(inputs.digest.to_string());
        }
        Ok(Self {
            placement: (context.placement_state)(&object),
            context,
            object,
            uid,
            now: Timestamp::now(),
            state,
            rollback_to: None,
            drift: DriftPlan::default(),
            refused: None,
            installed: None,
            uninstalling: false,
            written,
            status,
            outcome_number: None,
            outcome_is_repeated: false,
        })
    }

    pub async fn run(mut self) -> Result<Action, ReconcileError> {
        if self.state.finalizer_removed {
            return Ok(Action::await_change());
        }
        if self.has_uncached_placement().await? {
            return Ok(self.wait_for_watch("its placement"));
        }
        let desired = match self.desired().await {
            Ok(desired) => desired,
            Err(failure) => return self.refuse(&failure).await,
        };
        if !self.deleting() {
            self.refused = self.context.boundary(&desired, ReleaseUse::Desired).await.err();
        }
        self.take_in_outcome(&desired);
        let mut view = self.view(&desired).await;
        let mut decision = Plan::NoOp;
        for round in 0..ROUNDS {
            if round > 0 {
                view = self.view(&desired).await;
            }
            decision = if self.refresh_placement() {
                self.decide(&desired, &view)
            } else {
                Plan::Wait(Wait::PlacementChanging)
            };
            self.mark_installed(&desired, &view).await?;
            match &decision {
                Plan::Resolve => self.resolve(&desired, &view).await,
                Plan::Describe => self.describe(&desired, &view).await,
                Plan::Adopt { revision } => self.adopt(&desired, &view, *revision).await,
                Plan::ConfirmAbsence => self.confirm_absence(&desired, &view).await,
                Plan::Withdraw => self.context.caches.operations.withdraw(&self.uid),
                Plan::Operate(OperationKind::Remove) if self.has_uncached_claimant(&desired).await? => {
                    return Ok(self.wait_for_watch("another object of its release"));
                }
                Plan::Operate(kind) => {
                    self.clear_failure_before(*kind, &view);
                    self.add_finalizer().await?;
                    self.start(*kind, &desired, &view);
                    break;
                }
                Plan::Cancel(_) => {
                    self.context.caches.operations.cancel(&self.uid);
                    break;
                }
                Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone)
                    if self.has_uncached_cluster(&desired, &view).await? =>
                {
                    return Ok(self.wait_for_watch("its Cluster"));
                }
                Plan::RemoveFinalizer(why) => return self.remove_finalizer(&desired, *why).await,
                Plan::NoOp => {
                    self.status.last_failure = None;
                    break;
                }
                Plan::Wait(_) => break,
            }
        }
        let health = self.health(&desired, &view);
        let judge_at = self.judge_revision(&desired, &view, &decision);
        let (drift, test) = (self.drift_report(&desired, &view, &decision), self.test_report(&view));
        let findings =
            Findings { health: health.of_release.as_ref(), drift: drift.as_ref(), test: test.as_ref() };
        let message_at = self.update_conditions(&desired, &decision, findings);
        let held_plan_at = self.held_plan_at(&decision, &view);
        let drift_at = [self.drift.at, self.drift_status_due_at()];
        let recheck_at = [health.recheck_at, judge_at, message_at, self.test_retry_at(), held_plan_at];
        let recheck_at = recheck_at.into_iter().chain(drift_at).flatten().filter(|at| *at > self.now).min();
        // The state is given back with the status.
        let annotations = self.outdated_annotations(&desired, &view).await;
        let written = self.write().await;
        // Neither write blocks the other. What is missing afterwards is written by the next reconcile.
        self.annotate(&annotations).await?;
        written?;
        Ok(self.next(&desired, &decision, recheck_at))
    }

    /// Returns when to plan a comparison or optional tests again that a change of the placement holds: if it changes none of its
    /// release objects, nothing else reports that it is applied.
    fn held_plan_at(&self, decision: &Plan, view: &View) -> Option<Timestamp> {
        let is_due = self.drift.due.is_some() || self.test_need(view) == TestNeed::Optional;
        let is_held = *decision == Plan::NoOp && !self.placement.is_applied && is_due;
        self.now.checked_add(PLACEMENT_RETRY).ok().filter(|_| is_held)
    }

    /// Forgets the last failure if the operation is about a release that is up to date and ready without it.
    fn clear_failure_before(&mut self, kind: OperationKind, view: &View) {
        let is_ready = match kind {
            OperationKind::Compare => true,
            OperationKind::Test => self.test_need(view) == TestNeed::Optional,
            _ => false,
        };
        if is_ready {
            self.status.last_failure = None;
        }
    }

    /// Returns the desired release under its policy, with its repository unless the object is being deleted.
    async fn desired(&self) -> Result<Desired, Failure> {
        let desired = self.placement.apply_to(self.object.desired()?);
        if self.deleting() { Ok(desired) } else { self.context.catalogs.located(desired).await }
    }

    /// Takes in how the last operation has ended, once.
    fn take_in_outcome(&mut self, desired: &Desired) {
        let last = self.context.caches.operations.deliver_outcome(&self.uid);
        if let Some(NumberedOutcome { number, outcome, is_repeated }) = last
            && self.outcome_number != Some(number)
        {
            self.outcome_is_repeated = is_repeated;
            self.take_in(outcome, desired);
            self.outcome_is_repeated = false;
            self.outcome_number = Some(number);
        }
    }

    fn decide(&mut self, desired: &Desired, view: &View) -> Plan {
        let running = self.context.caches.operations.running(&self.uid);
        if running.is_none() {
            // Otherwise an operation that has ended since the reconcile began would be planned again.
            self.take_in_outcome(desired);
        }
        let listed = match &view.inventory {
            InventoryView::Known(inventory) => inventory.newest(&desired.release),
            _ => None,
        };
        if let Some(expected) = self.state.expectation.take_if(|expected| !expected.holds(listed, self.now))
            && !expected.is_met(listed)
            && let Some(connection) = view.connection()
        {
            // The watch should have shown it: it may be broken although no error was reported.
            connection.list_again();
        }
        let expectation = self.state.expectation.clone();
        let seen = expectation.as_ref().map_or(listed, |expected| expected.seen.as_ref());
        self.installed = seen.and_then(|seen| Some(seen.mark.as_ref()?.digest.clone()));
        self.uninstalling = seen.is_some_and(|seen| seen.status == inventory::ReleaseStatus::Uninstalling);
        let unchanged_since = match &view.inventory {
            InventoryView::Known(inventory) => {
                inventory.newest_unchanged_since(&desired.release, expectation.as_ref())
            }
            _ => None,
        };
        // The intermediate state of a short operation is not written.
        let finished = running.as_ref().is_none_or(|running| running.reportable);
        if let InventoryView::Known(inventory) = &view.inventory
            && finished
        {
            let none = BTreeMap::new();
            let stored = inventory.revisions(&desired.release).unwrap_or(&none);
            self.status.revision = seen.map(|seen| seen.revision);
            self.status.status = seen.map(|seen| seen.status.as_str().to_owned()).unwrap_or_default();
            self.status.history = history(&self.status.history, stored, seen, self.now);
        }
        let collision = self.collision(desired);
        let own = ObjectKey::of(&*self.object);
        let (unmet, needed_by) = self.context.dependencies(&own, desired, view.facts.is_deleting());
        let inputs = self.known_inputs(desired, view);
        let past = self.past_failure();
        let requested_rollback = inputs
            .as_ref()
            .and_then(|inputs| self.placement.requested_rollback(&*self.object, &inputs.digest));
        self.rollback_to = match &requested_rollback {
            Some(request) => Self::requested_target(desired, view, request.revision),
            None => Self::rollback_target(desired, view, seen, inputs.as_ref()),
        };
        self.drift = self.plan_drift(desired, view);
        let (placement, facts) = (&self.placement, &view.facts);
        let observed = Observed {
            deleting: self.deleting(),
            moved: self.object.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION),
            paused: facts.paused || status::is_paused(&*self.object),
            placement_paused: placement.paused,
            placement_changing: !placement.is_applied,
            suspended: placement.suspends(&*self.object),
            policy_missing: placement.policy.missing(),
            refused: self.refused.as_ref(),
            remediation: placement.policy.effective().remediation,
            retry_at: retry_requested_at(&*self.object),
            cluster: facts.state,
            strategy: desired.strategy,
            collision: &collision,
            unmet: &unmet,
            needed_by: &needed_by,
            remove_with_cluster: facts.waits_for_uninstalls(self.now) && desired.remove_with_cluster,
            orphan: placement.orphans(&*self.object),
            installed_before: self.object.was_installed(desired.strategy, &self.status, facts.uid.as_deref()),
            inventory: match &view.inventory {
                InventoryView::Loading => InventoryState::Loading,
                InventoryView::Unavailable(failure) => InventoryState::Unavailable(failure),
                InventoryView::Known(_) => InventoryState::Known(seen),
            },
            unchanged_since,
            timeout: desired.execution.timeout,
            inputs: inputs
                .as_ref()
                .map_or(InputState::Unresolved, |inputs| InputState::Resolved(&inputs.digest)),
            operation: running
                .as_ref()
                .map(|running| InFlight { operation: running.operation.borrowed(), phase: running.phase }),
            described: self.status.inventory_revision,
            differs: self.differs(inputs.as_ref()),
            rollback_to: self.rollback_to.as_ref().map(|target| target.revision),
            requested_rollback: requested_rollback.as_ref(),
            compare: self.drift.due.is_some(),
            comparison_is_outdated: self.comparison_is_outdated(desired),
            tests: self.test_need(view),
            absence_confirmed: self.state.absence_confirmed,
            failure: past.as_ref(),
            now: self.now,
        };
        let impossible = impossible_rollback(&observed);
        let plan = plan(&observed, self.object.meta().generation);
        if impossible != self.state.impossible_rollback {
            self.state.impossible_rollback = impossible;
            self.publish_impossible_rollback(desired);
        }
        plan
    }

    /// Returns the last failure. AddonTenancies may allow now what they did not allow when they were other ones.
    fn past_failure(&self) -> Option<PastFailure> {
        let past = past_failure(self.status.last_failure.as_ref()?, &self.uid)?;
        let is_outdated =
            past.failure.category == Category::NotAllowed && past.at < self.context.tenancies.changed_at();
        (!is_outdated).then_some(past)
    }

    /// Returns the revision that was read and differs from these inputs.
    fn differs(&self, inputs: Option<&Inputs>) -> Option<u32> {
        let (revision, from) = self.state.differs.as_ref()?;
        inputs.is_some_and(|inputs| inputs.digest == *from).then_some(*revision)
    }

    /// Returns whether other objects claim the same release.
    fn collision(&self, desired: &Desired) -> Collision {
        let claimants = self.context.all_kinds.claimants(&desired.cluster, &desired.release);
        Collision::among(&claimant(&*self.object), &claimants)
    }

    async fn resolve(&mut self, desired: &Desired, view: &View) {
        let control_plane = view.facts.control_plane.as_ref();
        let inputs = match self.context.inputs(desired, &self.status, control_plane).await {
            Ok(inputs) => self.check_tool(view, &inputs).await.map(|()| inputs),
            Err(failure) => Err(failure),
        };
        match inputs {
            Ok(inputs) => {
                self.status.package = Some(inputs.package.clone());
                self.status.values = Some(inputs.values.clone());
                self.status.input_digest = Some(inputs.digest.to_string());
                let key = self.inputs_key(desired, inputs.kubernetes_minor.clone());
                self.state.inputs = Some((key, inputs));
            }
            Err(failure) => {
                let key = failure_key::resolve(self.object.meta().generation);
                self.note_failure(desired, key, &failure);
            }
        }
    }

    /// Refuses a package for another tool than that of the installed release. A release counts as installed unless it is known
    /// not to be.
    async fn check_tool(&self, view: &View, inputs: &Inputs) -> Result<(), Failure> {
        let absent = matches!(view.inventory, InventoryView::Known(_))
            && self.status.revision.is_none()
            && self.context.caches.operations.running(&self.uid).is_none();
        let installed = self.status.package.as_ref().filter(|_| !absent);
        self.context.check_tool(installed, &inputs.package).await
    }

    /// Reads the release to fill in the details of the status.
    async fn describe(&mut self, desired: &Desired, view: &View) {
        match self.observe(desired, view).await {
            Ok(Some(details)) => self.take_details(&details),
            Ok(None) => {
                // The watch lags behind, or it is broken although no error was reported.
                self.expect_absence();
                if let Some(connection) = view.connection() {
                    connection.list_again();
                }
            }
            Err(failure) => self.note_read_failure(desired, view, &failure),
        }
    }

    /// Asks the tool whether the release of a deleted object exists.
    async fn confirm_absence(&mut self, desired: &Desired, view: &View) {
        match self.observe(desired, view).await {
            Ok(None) => self.state.absence_confirmed = true,
            Ok(Some(details)) => self.expect(details.seen()),
            // The tool refuses the name of the release, so it has never installed it.
            Err(failure) if matches!(failure.category, Category::InvalidValues | Category::InvalidSpec) => {
                self.state.absence_confirmed = true;
            }
            Err(failure) => self.note_failure(desired, failure_key::remove(), &failure),
        }
    }

    /// Reads a foreign revision, and adopts it if it matches the desired release.
    async fn adopt(&mut self, desired: &Desired, view: &View, revision: u32) {
        let Some(inputs) = self.known_inputs(desired, view) else { return };
        let details = match self.observe(desired, view).await {
            Ok(Some(details)) if details.revision == revision => details,
            Ok(_) => {
                self.state.differs = Some((revision, inputs.digest));
                return;
            }
            Err(failure) => return self.note_read_failure(desired, view, &failure),
        };
        // A tenant may have written a revision that looks like that of the platform.
        let is_forbidden = match self.context.forbids_adoption(desired).await {
            Ok(is_forbidden) => is_forbidden,
            Err(failure) => return self.note_read_failure(desired, view, &failure),
        };
        if is_forbidden || !inputs.are_those_of(&details, desired) {
            self.state.differs = Some((revision, inputs.digest));
            return;
        }
        let mark = InputMark { digest: inputs.digest.clone(), revision };
        let marked = match view.connection() {
            Some(connection) => outside_of_limit(connection.mark(&desired.release, &mark)).await,
            None => return,
        };
        match marked {
            Ok(()) => {
                self.take_details(&details);
                self.expect(RevisionState { mark: Some(mark), ..details.seen() });
                let note = format!("Adopted release {} at revision {revision}", desired.release);
                self.context.events.normal(&*self.object, "Adopted", &note);
            }
            Err(failure) => self.note_read_failure(desired, view, &failure),
        }
    }

    async fn observe(&self, desired: &Desired, view: &View) -> Result<Option<ReleaseDetails>, Failure> {
        let (Some((tool, _)), Some(target)) = (&view.connected, view.target()) else {
            return Err(Failure::new(Category::Unreachable, "the cluster is not connected"));
        };
        self.context.metrics.tool_call("observe");
        outside_of_limit(tool.observe(&target, &desired.release)).await
    }

    fn inputs_key(&self, desired: &Desired, kubernetes_minor: Option<String>) -> InputsKey {
        let poll = self.poll(desired);
        InputsKey {
            generation: self.object.meta().generation,
            kubernetes_minor,
            period: poll.map_or(0, |poll| poll.period(self.now)),
            changes: poll.map_or(0, |_| self.context.packages.change_count(&desired.package.repository)),
        }
    }

    /// Returns when to poll for a newer version. `None` means that the version is pinned.
    fn poll(&self, desired: &Desired) -> Option<Poll> {
        let unpinned = desired.package.version.is_none();
        unpinned.then(|| Poll::new(self.context.poll_interval, &self.uid))
    }

    fn known_inputs(&self, desired: &Desired, view: &View) -> Option<Inputs> {
        let (of, inputs) = self.state.inputs.as_ref()?;
        let control_plane = view.facts.control_plane.as_ref().filter(|_| inputs.package.reads_capabilities);
        let minor = self.context.known_kubernetes_minor(&desired.cluster, control_plane);
        // An unknown version is no other version.
        let minor = minor.or_else(|| of.kubernetes_minor.clone().filter(|_| control_plane.is_some()));
        (*of == self.inputs_key(desired, minor)).then(|| inputs.clone())
    }

    /// Returns when the release is reconciled again without an event, at `recheck_at` at the latest, and when it is time for a
    /// retry that a user has asked for.
    fn next(&self, desired: &Desired, decision: &Plan, recheck_at: Option<Timestamp>) -> Action {
        let poll = self.poll(desired).map(|poll| poll.wait(self.now)).filter(|wait| *wait < queue::RESYNC);
        let wait = match decision {
            // Nothing is watched that could report that the tool is back.
            Plan::Wait(Wait::Unavailable(failure)) if failure.category == Category::ToolUnavailable => {
                TOOL_RETRY
            }
            // Nor what would report that the labels of a namespace can be read, or that they are other ones.
            Plan::Wait(Wait::AwaitingRules { failure } | Wait::RulesUnknown { failure })
                if !matches!(failure.category, Category::NotAllowed | Category::InvalidSpec) =>
            {
                TOOL_RETRY
            }
            Plan::Wait(Wait::NotAllowed { .. }) if self.context.tenancies.select_by_label() => LABEL_RETRY,
            Plan::Wait(Wait::Backoff { until, .. } | Wait::ForeignOperation { until, .. }) => {
                queue::until(*until)
            }
            Plan::Wait(Wait::PlacementChanging) => PLACEMENT_RETRY,
            _ if self.context.caches.reconcile_states.get(&self.uid).expectation.is_some() => CATCH_UP,
            _ => poll.unwrap_or_else(|| queue::until_resync(&*self.object)),
        };
        let retry_at = retry_requested_at(&*self.object).filter(|at| *at > self.now);
        let earlier = recheck_at.into_iter().chain(retry_at).min();
        Action::requeue(earlier.map_or(wait, |at| wait.min(queue::until(at))))
    }
}
