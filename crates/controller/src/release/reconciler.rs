//! One pass over one release object.

mod outcome;
mod status;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    capi::{DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION},
    status::ReleaseStatus,
};
use chandler_core::{
    digest::InputMark,
    failure::{Category, Failure},
    inventory::{ReleaseStatus as InventoryStatus, RevisionState},
    poll::Poll,
    release::{
        ClusterState, Collision, Desired, InFlight, InputState, InventoryState, RemoveFinalizer, Observed, Operation,
        OperationKind, Plan, ReleaseKind, Strategy, Wait, failure_key, history, plan,
    },
};
use chandler_tool::ReleaseDetails;
use chandler_workload::{Connection, InventoryView};
use jiff::Timestamp;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::json;

use super::{
    Outcome, ReleaseContext, claimant,
    inputs::Inputs,
    reconcile_state::{InputsKey, ReconcileState},
};
use crate::{ManagementError, ReconcileError, clusters::ClusterFacts, queue, status};

/// How long our own word on an operation counts for more than the watch.
const CATCH_UP: Duration = Duration::from_secs(30);
/// A plan leads to another at most this often in one pass.
const ROUNDS: usize = 5;

pub struct Reconciler<R: ReleaseKind> {
    context: Arc<ReleaseContext<R>>,
    object: Arc<R>,
    uid: String,
    now: Timestamp,
    state: ReconcileState,
    status: ReleaseStatus,
}

/// What a pass sees of the cluster.
struct View {
    facts: ClusterFacts,
    connection: Option<Arc<Connection>>,
    inventory: InventoryView,
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
        let state = context.reconcile_states.get(&uid);
        let status = state.status.clone().or_else(|| object.status().cloned()).unwrap_or_default();
        Ok(Self { context, object, uid, now: Timestamp::now(), state, status })
    }

    pub async fn run(mut self) -> Result<Action, ReconcileError> {
        let before = self.status.clone();
        let desired = match self.desired().await {
            Ok(desired) => desired,
            Err(failure) => return self.refuse(&before, &failure).await,
        };
        if let Some(outcome) = self.context.operations.take_outcome(&self.uid) {
            self.take_in(outcome, &desired);
        }
        let healthy = self.status.status == InventoryStatus::Deployed.as_str();
        if desired.strategy == Strategy::InstallOnce && healthy && !self.installed_before(desired.strategy) {
            self.mark_installed().await?;
        }
        let mut decision = Plan::NoOp;
        for _ in 0..ROUNDS {
            let view = self.view(&desired);
            decision = self.decide(&desired, &view);
            match &decision {
                Plan::Resolve => self.resolve(&desired, &view).await,
                Plan::Describe => self.describe(&desired, &view).await,
                Plan::Adopt { revision } => self.adopt(&desired, &view, *revision).await,
                Plan::Operate(kind) => {
                    self.hold().await?;
                    self.start(*kind, &desired, &view);
                    break;
                }
                Plan::Cancel => {
                    self.context.operations.cancel(&self.uid);
                    break;
                }
                Plan::RemoveFinalizer(why) => return self.remove_finalizer(&before, &desired, *why).await,
                Plan::NoOp => {
                    self.status.last_failure = None;
                    break;
                }
                Plan::Wait(_) => break,
            }
        }
        self.tell(&desired, &decision);
        self.write(&before).await?;
        Ok(self.next(&desired, &decision))
    }

    /// What the object asks for, and where that is to be found. What is removed is not looked for.
    async fn desired(&self) -> Result<Desired, Failure> {
        let desired = self.object.desired()?;
        if self.deleting() { Ok(desired) } else { self.context.catalogs.located(desired).await }
    }

    fn view(&self, desired: &Desired) -> View {
        let facts = self.context.clusters.facts(&desired.cluster);
        let reachable = facts.state == ClusterState::Available
            || desired.remove_with_cluster && facts.waits_for_removals(self.now);
        let connection = reachable.then(|| self.context.connections.to(&desired.cluster));
        let inventory =
            connection.as_ref().map_or(InventoryView::Loading, |connection| connection.inventory());
        View { facts, connection, inventory }
    }

    fn decide(&mut self, desired: &Desired, view: &View) -> Plan {
        let listed = match &view.inventory {
            InventoryView::Known(inventory) => inventory.newest(&desired.release),
            _ => None,
        };
        self.state.expectation = self.state.expectation.take().filter(|ours| ours.holds(listed, self.now));
        let expectation = self.state.expectation.clone();
        let seen = expectation.as_ref().map_or(listed, |ours| ours.seen.as_ref());
        let running = self.context.operations.running(&self.uid);
        // What a young operation has not finished yet is not worth a write.
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
        let (unmet, needed_by) = self.neighbours(desired);
        let inputs = self.known_inputs(desired, view);
        let past = self.past_failure();
        let observed = Observed {
            deleting: self.deleting(),
            moved: self.object.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION),
            paused: view.facts.paused || self.object.annotations().contains_key(PAUSED_ANNOTATION),
            cluster: view.facts.state,
            strategy: desired.strategy,
            collision: &collision,
            unmet: &unmet,
            needed_by: &needed_by,
            remove_with_cluster: view.facts.waits_for_removals(self.now) && desired.remove_with_cluster,
            installed_before: self.installed_before(desired.strategy),
            inventory: match &view.inventory {
                InventoryView::Loading => InventoryState::Loading,
                InventoryView::Unavailable(failure) => InventoryState::Unavailable(failure),
                InventoryView::Known(_) => InventoryState::Known(seen),
            },
            inputs: inputs
                .as_ref()
                .map_or(InputState::Unresolved, |inputs| InputState::Resolved(&inputs.digest)),
            operation: running.as_ref().map(|running| InFlight {
                operation: running.operation.borrowed(),
                waiting: running.waiting,
            }),
            described: self.status.inventory_revision,
            differs: self.differs(inputs.as_ref()),
            failure: past.as_ref(),
            now: self.now,
        };
        plan(&observed, self.object.meta().generation)
    }

    /// A revision that was read and differs from these very inputs.
    fn differs(&self, inputs: Option<&Inputs>) -> Option<u32> {
        let (revision, from) = self.state.differs.as_ref()?;
        inputs.is_some_and(|inputs| inputs.digest == *from).then_some(*revision)
    }

    /// Whether other objects claim the same release.
    fn collision(&self, desired: &Desired) -> Collision {
        let claimants = self.context.all_kinds.claimants(&desired.cluster, &desired.release);
        Collision::among(&claimant(&*self.object), &claimants)
    }

    /// The objects that have to be ready before this one and are not, and those that this one has to outlive.
    fn neighbours(&self, desired: &Desired) -> (Vec<String>, Vec<String>) {
        if !R::ORDERED {
            return (Vec::new(), Vec::new());
        }
        let own = self.object.name_any();
        let all = self.context.releases.on_cluster(&desired.cluster);
        let is_met = |name: &String| all.iter().any(|other| other.name_any() == *name && other.satisfies_dependents());
        let unmet = desired.depends_on.iter().filter(|name| !is_met(name)).cloned();
        let needs_this =
            |other: &&Arc<R>| other.desired().is_ok_and(|theirs| theirs.depends_on.contains(&own));
        let needed_by = all.iter().filter(needs_this).map(|other| other.name_any());
        (unmet.collect(), needed_by.collect())
    }

    async fn resolve(&mut self, desired: &Desired, view: &View) {
        let control_plane = view.facts.control_plane.as_ref();
        match self.context.inputs(desired, &self.status, control_plane).await {
            Ok(inputs) => {
                self.status.package = Some(inputs.package.clone());
                self.status.values = Some(inputs.values.clone());
                let key = self.inputs_key(desired, inputs.kubernetes_minor.clone());
                self.state.inputs = Some((key, inputs));
            }
            Err(failure) => {
                let key = failure_key::resolve(self.object.meta().generation);
                self.note_failure(key, &failure);
            }
        }
    }

    /// Reads the release, so that the status knows its details again.
    async fn describe(&mut self, desired: &Desired, view: &View) {
        match self.observe(desired, view).await {
            Ok(Some(details)) => self.take_details(&details),
            Ok(None) => self.state.expectation = None,
            Err(failure) => self.note_read_failure(desired, view, &failure),
        }
    }

    /// Reads someone else's revision, and makes it ours if it is what is wanted.
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
        if !is_wanted(&details, desired, &inputs) {
            self.state.differs = Some((revision, inputs.digest));
            return;
        }
        let mark = InputMark { digest: inputs.digest.clone(), revision };
        let marked = match &view.connection {
            Some(connection) => connection.mark(&desired.release, &mark).await,
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
        let target = view.connection.as_ref().and_then(|connection| connection.target());
        let target =
            target.ok_or_else(|| Failure::new(Category::Unreachable, "the cluster is not connected"))?;
        self.context.metrics.tool_call("observe");
        self.context.tool.observe(&target, &desired.release).await
    }

    fn start(&self, kind: OperationKind, desired: &Desired, view: &View) {
        let Some(target) = view.connection.as_ref().and_then(|connection| connection.target()) else {
            return;
        };
        let operation = match (kind, self.known_inputs(desired, view)) {
            (OperationKind::Remove, _) => Operation::Remove,
            (OperationKind::Apply(kind), Some(inputs)) => Operation::Apply { kind, inputs },
            (OperationKind::Apply(_), None) => {
                // They changed after the plan was made, for example by a version that was published meanwhile.
                self.context.queue.enqueue(ObjectRef::from_obj(&*self.object));
                return;
            }
        };
        self.context.operate(&*self.object, operation, desired, target);
    }

    fn inputs_key(&self, desired: &Desired, kubernetes_minor: Option<String>) -> InputsKey {
        let poll = self.poll(desired);
        InputsKey {
            generation: self.object.meta().generation,
            kubernetes_minor,
            period: poll.map_or(0, |poll| poll.period(self.now)),
            changes: poll.map_or(0, |_| self.context.packages.changed(&desired.package.repository)),
        }
    }

    /// When to look for a newer version. None: the version is pinned.
    fn poll(&self, desired: &Desired) -> Option<Poll> {
        let unpinned = desired.package.version.is_none();
        unpinned.then(|| Poll::new(self.context.poll_interval, &self.uid))
    }

    fn known_inputs(&self, desired: &Desired, view: &View) -> Option<Inputs> {
        let (of, inputs) = self.state.inputs.as_ref()?;
        let control_plane = view.facts.control_plane.as_ref().filter(|_| inputs.package.reads_capabilities);
        let minor = self.context.known_kubernetes_minor(&desired.cluster, control_plane);
        (*of == self.inputs_key(desired, minor)).then(|| inputs.clone())
    }

    /// Writes down that the release has been installed, for objects that install once.
    async fn mark_installed(&self) -> Result<(), ManagementError> {
        let patch = json!({"metadata": {"annotations": {R::INSTALLED_ANNOTATION: "true"}}});
        let name = self.object.name_any();
        status::api(&self.context.client, &*self.object)
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(|source| ManagementError::Write { kind: status::kind::<R>(), name, source })
    }

    fn deleting(&self) -> bool {
        self.object.meta().deletion_timestamp.is_some()
    }

    fn installed_before(&self, strategy: Strategy) -> bool {
        match strategy {
            Strategy::Continuous => self.status.inventory_revision.is_some(),
            Strategy::InstallOnce => self.object.is_marked_installed(),
        }
    }

    async fn hold(&self) -> Result<(), ManagementError> {
        if self.deleting() {
            return Ok(());
        }
        status::add_finalizer(&self.context.client, &*self.object, R::FINALIZER).await
    }

    async fn remove_finalizer(
        mut self,
        before: &ReleaseStatus,
        desired: &Desired,
        why: RemoveFinalizer,
    ) -> Result<Action, ReconcileError> {
        if self.object.finalizers().iter().any(|held| held != R::FINALIZER) {
            // Others hold the object too, and its readers want to know how far it is.
            self.tell(desired, &Plan::RemoveFinalizer(why));
            self.write(before).await?;
        }
        status::remove_finalizer(&self.context.client, &*self.object, R::FINALIZER).await?;
        tracing::info!(cluster = %desired.cluster, release = %desired.release, ?why, "release object let go");
        self.context.reconcile_states.forget(&self.uid);
        Ok(Action::await_change())
    }

    fn next(&self, desired: &Desired, decision: &Plan) -> Action {
        let poll = self.poll(desired).map(|poll| poll.wait(self.now)).filter(|wait| *wait < queue::RESYNC);
        match decision {
            Plan::Wait(Wait::Backoff { until, .. } | Wait::ForeignOperation { until, .. }) => {
                queue::at(*until)
            }
            _ if self.context.reconcile_states.get(&self.uid).expectation.is_some() => Action::requeue(CATCH_UP),
            _ => poll.map_or_else(|| queue::resync(&*self.object), Action::requeue),
        }
    }
}

fn is_wanted(details: &ReleaseDetails, desired: &Desired, inputs: &Inputs) -> bool {
    details.package_name == desired.package.name
        && details.package_version == inputs.package.version
        && details.values.as_ref().is_some_and(|values| values.as_str() == inputs.values.canonical)
}
