//! One pass over one release object.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    capi::{DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION},
    status::{FailureRecord, ReleaseStatus, RevisionRecord},
};
use chandler_core::{
    backoff, conditions,
    conditions::{Status, Wanted},
    digest::InputMark,
    failure::{Category, Failure},
    inventory::{Expectation, ReleaseStatus as InventoryStatus, Seen},
    poll::Poll,
    release::{
        ANOTHER_NAME, Claimant, ClusterState, Collision, Desired, InFlight, InputState, InventoryState,
        LetGo, Observed, OperationKind, PastFailure, Plan, ReleaseFace, Strategy, Wait, failure_key, history,
        plan, report,
    },
};
use chandler_tool::ReleaseDetails;
use chandler_workload::{Connection, InventoryView};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    Outcome, ReleaseContext, claimant,
    inputs::Inputs,
    memory::{InputsKey, Memory},
};
use crate::{Error, clusters::ClusterFacts, queue, status};

/// How long our own word on an operation counts for more than the watch.
const CATCH_UP: Duration = Duration::from_secs(30);
/// A plan leads to another at most this often in one pass.
const ROUNDS: usize = 5;

pub struct Pass<R: ReleaseFace> {
    context: Arc<ReleaseContext<R>>,
    object: Arc<R>,
    uid: String,
    now: Timestamp,
    memory: Memory,
    status: ReleaseStatus,
}

/// What a pass sees of the cluster.
struct View {
    facts: ClusterFacts,
    connection: Option<Arc<Connection>>,
    inventory: InventoryView,
}

impl<R> Pass<R>
where
    R: ReleaseFace + kube::Resource<Scope = NamespaceResourceScope>,
{
    pub fn begin(object: Arc<R>, context: Arc<ReleaseContext<R>>) -> Result<Self, Error> {
        let uid = object.uid().ok_or_else(|| Error::Incomplete {
            kind: status::kind::<R>(),
            name: object.name_any(),
            field: "uid",
        })?;
        let memory = context.memories.recall(&uid);
        let status = memory.status.clone().or_else(|| object.status().cloned()).unwrap_or_default();
        Ok(Self { context, object, uid, now: Timestamp::now(), memory, status })
    }

    pub async fn run(mut self) -> Result<Action, Error> {
        let before = self.status.clone();
        let desired = match self.object.desired() {
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
                Plan::LetGo(why) => return self.let_go(&before, &desired, *why).await,
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

    fn view(&self, desired: &Desired) -> View {
        let facts = self.context.clusters.facts(&desired.cluster);
        let connection =
            (facts.state == ClusterState::Available).then(|| self.context.connections.to(&desired.cluster));
        let inventory =
            connection.as_ref().map_or(InventoryView::Loading, |connection| connection.inventory());
        View { facts, connection, inventory }
    }

    fn decide(&mut self, desired: &Desired, view: &View) -> Plan {
        let listed = match &view.inventory {
            InventoryView::Known(inventory) => inventory.newest(&desired.release),
            _ => None,
        };
        self.memory.expectation = self.memory.expectation.take().filter(|ours| ours.holds(listed, self.now));
        let expectation = self.memory.expectation.clone();
        let seen = expectation.as_ref().map_or(listed, |ours| ours.seen.as_ref());
        let running = self.context.operations.running(&self.uid);
        // What a young operation has not finished yet is not worth a write.
        let finished = running.as_ref().is_none_or(|running| running.told);
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
        let inputs = self.known_inputs(desired, view);
        let past = self.past_failure();
        let observed = Observed {
            deleting: self.deleting(),
            moved: self.object.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION),
            paused: view.facts.paused || self.object.annotations().contains_key(PAUSED_ANNOTATION),
            cluster: view.facts.state,
            strategy: desired.strategy,
            collision: &collision,
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
                kind: running.kind,
                waiting: running.waiting,
                inputs: running.inputs.as_ref(),
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
        let (revision, from) = self.memory.differs.as_ref()?;
        inputs.is_some_and(|inputs| inputs.digest == *from).then_some(*revision)
    }

    /// Whether other objects claim the same release.
    fn collision(&self, desired: &Desired) -> Collision {
        let claimants = self.context.faces.claimants(&desired.cluster, &desired.release);
        Collision::among(&claimant(&*self.object), &claimants)
    }

    async fn resolve(&mut self, desired: &Desired, view: &View) {
        let control_plane = view.facts.control_plane.as_ref();
        match self.context.inputs(desired, &self.status, control_plane).await {
            Ok(inputs) => {
                self.status.package = Some(inputs.package.clone());
                self.status.values = Some(inputs.values.clone());
                let key = self.inputs_key(desired, inputs.kubernetes_minor.clone());
                self.memory.inputs = Some((key, inputs));
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
            Ok(None) => self.memory.expectation = None,
            Err(failure) => self.note_read_failure(desired, view, &failure),
        }
    }

    /// Reads someone else's revision, and makes it ours if it is what is wanted.
    async fn adopt(&mut self, desired: &Desired, view: &View, revision: u32) {
        let Some(inputs) = self.known_inputs(desired, view) else { return };
        let details = match self.observe(desired, view).await {
            Ok(Some(details)) if details.revision == revision => details,
            Ok(_) => {
                self.memory.differs = Some((revision, inputs.digest));
                return;
            }
            Err(failure) => return self.note_read_failure(desired, view, &failure),
        };
        if !is_wanted(&details, desired, &inputs) {
            self.memory.differs = Some((revision, inputs.digest));
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
                self.expect(Seen { mark: Some(mark), ..details.seen() });
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
        let inputs = self.known_inputs(desired, view).filter(|_| kind != OperationKind::Remove);
        self.context.operate(&*self.object, kind, desired, target, inputs);
    }

    /// Takes in how an operation ended.
    fn take_in(&mut self, outcome: Outcome, desired: &Desired) {
        match outcome.result {
            Ok(Some(details)) => {
                self.take_details(&details);
                self.expect(details.seen());
                self.status.last_failure = None;
                self.memory.differs = None;
                let (reason, note) = applied(outcome.kind, desired, &details);
                self.context.events.normal(&*self.object, reason, &note);
            }
            Ok(None) => {
                self.memory.expectation = Some(self.expectation(None));
                self.status.last_failure = None;
                let note =
                    format!("Removed release {} from cluster {}", desired.release, desired.cluster.name);
                self.context.events.normal(&*self.object, "Removed", &note);
            }
            Err(error) => {
                if let Some(details) = &error.state {
                    self.expect(details.seen());
                }
                if error.failure.category == Category::Unauthorized {
                    // The next look opens it again, with the kubeconfig as it is then.
                    self.context.connections.close(&desired.cluster);
                }
                if error.failure.category != Category::Cancelled {
                    self.note_failure(outcome.key, &error.failure);
                }
            }
        }
    }

    fn take_details(&mut self, details: &ReleaseDetails) {
        self.status.revision = Some(details.revision);
        details.status.as_str().clone_into(&mut self.status.status);
        self.status.inventory.clone_from(&details.inventory);
        self.status.inventory_revision = Some(details.revision);
        let known = self.status.history.iter().find(|known| known.revision == details.revision);
        let record = RevisionRecord {
            revision: details.revision,
            status: details.status.as_str().to_owned(),
            version: Some(details.package_version.clone()),
            at: known.map_or(Time(self.now), |known| known.at.clone()),
        };
        self.status.history.retain(|known| known.revision != details.revision);
        self.status.history.insert(0, record);
    }

    fn expect(&mut self, seen: Seen) {
        self.memory.expectation = Some(self.expectation(Some(seen)));
    }

    fn expectation(&self, seen: Option<Seen>) -> Expectation {
        Expectation { seen, until: self.now.checked_add(CATCH_UP).unwrap_or(self.now) }
    }

    fn note_read_failure(&mut self, desired: &Desired, view: &View, failure: &Failure) {
        let generation = self.object.meta().generation;
        if let Some(inputs) = self.known_inputs(desired, view) {
            self.note_failure(failure_key::read(generation, &inputs.digest), failure);
        }
    }

    fn note_failure(&mut self, key: String, failure: &Failure) {
        let last = self.status.last_failure.as_ref();
        let count = last.filter(|last| last.input == key).map_or(1, |last| last.count.saturating_add(1));
        let told = last.is_some_and(|last| last.input == key && last.message == failure.message);
        self.status.last_failure = Some(FailureRecord {
            category: failure.category.to_string(),
            message: failure.message.clone(),
            input: key,
            count,
            at: Time(Timestamp::now()),
        });
        self.now = Timestamp::now();
        if !told {
            self.context.events.warning(&*self.object, failure.category.as_str(), &failure.message);
        }
    }

    fn past_failure(&self) -> Option<PastFailure> {
        let last = self.status.last_failure.as_ref()?;
        let failure = Failure::new(Category::parse(&last.category), last.message.clone());
        let delay = backoff::delay(failure.category, last.count, &self.uid);
        let retry_at = last.at.0.checked_add(delay).ok()?;
        Some(PastFailure { key: last.input.clone(), failure, retry_at })
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
        let (of, inputs) = self.memory.inputs.as_ref()?;
        let control_plane = view.facts.control_plane.as_ref().filter(|_| inputs.package.reads_capabilities);
        let minor = self.context.known_kubernetes_minor(&desired.cluster, control_plane);
        (*of == self.inputs_key(desired, minor)).then(|| inputs.clone())
    }

    /// Writes down that the release has been installed, for objects that install once.
    async fn mark_installed(&self) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {R::INSTALLED_ANNOTATION: "true"}}});
        let name = self.object.name_any();
        status::api(&self.context.client, &*self.object)
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(|source| Error::Write { kind: status::kind::<R>(), name, source })
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

    /// The spec itself cannot be used: says so, and waits for another.
    async fn refuse(mut self, before: &ReleaseStatus, failure: &Failure) -> Result<Action, Error> {
        if self.deleting() && self.status.revision.is_none() {
            status::let_go(&self.context.client, &*self.object, R::FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let generation = self.object.meta().generation;
        let wanted = |type_| Wanted {
            type_,
            status: Status::False,
            reason: "InvalidSpec",
            message: failure.message.clone(),
        };
        let conditions = vec![wanted("Ready"), wanted(R::VOCABULARY.release_ready)];
        self.status.conditions = conditions::merge(&self.status.conditions, conditions, generation, self.now);
        self.status.observed_generation = generation;
        self.write(before).await?;
        Ok(Action::await_change())
    }

    fn tell(&mut self, desired: &Desired, decision: &Plan) {
        let running = self.context.operations.running(&self.uid);
        if running.as_ref().is_some_and(|running| !running.told) && self.has_failed_at_this() {
            // Another try says nothing new until it succeeds, fails or takes its time.
            return;
        }
        let progress = running.as_ref().filter(|running| running.told).map(|running| &running.progress);
        let name = desired.release.to_string();
        let spoken = !self.status.conditions.is_empty();
        let said = report(decision, &R::VOCABULARY, &name, progress, spoken);
        let Some(said) = said else { return };
        let mut wanted = said.conditions;
        if let Collision::Contested { by } = self.collision(desired) {
            for condition in wanted.iter_mut().filter(|condition| condition.message.is_empty()) {
                condition.message = format!("release {name} is claimed by {by} too; {ANOTHER_NAME}");
            }
        }
        let generation = self.object.meta().generation;
        self.status.conditions = conditions::merge(&self.status.conditions, wanted, generation, self.now);
        self.status.observed_generation = generation;
    }

    fn has_failed_at_this(&self) -> bool {
        self.status.last_failure.is_some() && self.status.observed_generation == self.object.meta().generation
    }

    async fn write(&mut self, before: &ReleaseStatus) -> Result<(), Error> {
        // Kept even if the write fails: what was learned must not be learned again.
        self.context.memories.keep(&self.uid, self.memory.clone());
        if self.status != *before {
            status::write(&self.context.client, &*self.object, &self.status).await?;
        }
        self.memory.status = Some(self.status.clone());
        self.context.memories.keep(&self.uid, std::mem::take(&mut self.memory));
        Ok(())
    }

    async fn hold(&self) -> Result<(), Error> {
        if self.deleting() {
            return Ok(());
        }
        status::hold(&self.context.client, &*self.object, R::FINALIZER).await
    }

    async fn let_go(
        mut self,
        before: &ReleaseStatus,
        desired: &Desired,
        why: LetGo,
    ) -> Result<Action, Error> {
        if self.object.finalizers().iter().any(|held| held != R::FINALIZER) {
            // Others hold the object too, and its readers want to know how far it is.
            self.tell(desired, &Plan::LetGo(why));
            self.write(before).await?;
        }
        status::let_go(&self.context.client, &*self.object, R::FINALIZER).await?;
        tracing::info!(cluster = %desired.cluster, release = %desired.release, ?why, "release object let go");
        self.context.memories.forget(&self.uid);
        Ok(Action::await_change())
    }

    fn next(&self, desired: &Desired, decision: &Plan) -> Action {
        let poll = self.poll(desired).map(|poll| poll.wait(self.now)).filter(|wait| *wait < queue::RESYNC);
        match decision {
            Plan::Wait(Wait::Backoff { until, .. } | Wait::ForeignOperation { until, .. }) => {
                queue::at(*until)
            }
            _ if self.context.memories.recall(&self.uid).expectation.is_some() => Action::requeue(CATCH_UP),
            _ => poll.map_or_else(|| queue::resync(&*self.object), Action::requeue),
        }
    }
}

fn is_wanted(details: &ReleaseDetails, desired: &Desired, inputs: &Inputs) -> bool {
    details.package_name == desired.package.name
        && details.package_version == inputs.package.version
        && details.values.as_ref().is_some_and(|values| values.as_str() == inputs.values.canonical)
}

fn applied(kind: OperationKind, desired: &Desired, details: &ReleaseDetails) -> (&'static str, String) {
    let (reason, verb) = match kind {
        OperationKind::Install => ("Installed", "Installed"),
        OperationKind::Recover => ("Recovered", "Recovered"),
        OperationKind::Upgrade | OperationKind::Remove => ("Upgraded", "Upgraded"),
    };
    let note = format!(
        "{verb} release {} of {} {} at revision {} on cluster {}",
        desired.release,
        details.package_name,
        details.package_version,
        details.revision,
        desired.cluster.name
    );
    (reason, note)
}
