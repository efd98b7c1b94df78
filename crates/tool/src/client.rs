//! The client of a package tool, in Chandler's own types.

mod compare_and_test;
mod render;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::status::ObjectRecords;
use chandler_core::{
    digest::{Digest, InputDigest, InputMark},
    failure::{Category, Failure},
    identity::{ReleaseId, ToolId},
    inventory::{ReleaseRecords, ReleaseStatus, RevisionState},
    package_format::PackageFormat,
    release::ExecutionOptions,
    target::Target,
};
use chandler_telemetry::trace;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, metadata::AsciiMetadataKey, transport::Channel};

use crate::{
    convert,
    description_cache::DescriptionCache,
    generated::tool::{self as proto, package_tool_client::PackageToolClient},
    namespaces::NamespaceProcesses,
    order::{ApplyOrder, PackageFile, RemoveOrder, RollbackOrder},
    supervisor::{CallRequest, ProcessGuard, Supervisor, ToolError},
};

pub use render::RenderedRelease;

/// Largest message either way.
pub(crate) const MESSAGE_LIMIT: usize = 64 << 20;
/// Limit of a call that touches no cluster. A call that uses more CPU time than it may ends before: see `CHANDLER_CPU_SECONDS`.
const LOCAL_LIMIT: Duration = Duration::from_secs(90);
/// An operation that needs longer to stop may not have ended: the Helm driver gives up after 30 s.
const STOP_LIMIT: Duration = Duration::from_secs(25);
/// Added to the time limit of an operation, for its last message.
const GRACE: Duration = Duration::from_secs(90);
/// How long the last event of an operation that was stopped may take.
const LAST_EVENT: Duration = Duration::from_secs(10);

/// A release as the tool reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseDetails {
    pub revision: u32,
    pub status: ReleaseStatus,
    pub package_name: String,
    pub package_version: String,
    /// Of the values given for this revision.
    pub values: Option<Digest>,
    /// `None` means that Chandler did not make this revision.
    pub inputs: Option<InputDigest>,
    /// The inputs that had failed before a rollback created this revision.
    pub rolled_back: Option<InputDigest>,
    pub inventory: ObjectRecords,
    pub description: String,
}

impl ReleaseDetails {
    /// Returns the revision as the inventory will list it. The input mark is the tool's: a failed operation may have rolled
    /// back to an older revision, which has other inputs.
    pub fn seen(&self) -> RevisionState {
        let mark = self.inputs.clone().map(|digest| InputMark { digest, revision: self.revision });
        RevisionState {
            revision: self.revision,
            status: self.status,
            mark,
            rolled_back: self.rolled_back.clone(),
            updated: None,
        }
    }
}

/// The result of an install, upgrade or rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub details: ReleaseDetails,
    /// The newest revision was deployed with these inputs before, and the tool created none.
    pub unchanged: bool,
    /// The fields that were left to other field managers, each with its object.
    pub ignored_fields: Vec<String>,
}

/// A step of a running operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    pub message: String,
    /// The operation only waits from here on, so its slot is free.
    pub waiting: bool,
}

/// A failed operation, with the state that it left, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationFailure {
    pub failure: Failure,
    pub state: Option<ReleaseDetails>,
}

impl From<Failure> for OperationFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, state: None }
    }
}

/// How a tool describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDescription {
    pub name: String,
    pub version: String,
    pub driver_version: String,
    pub formats: Vec<PackageFormat>,
    pub capabilities: Vec<String>,
    /// Where it records its releases.
    pub records: Arc<ReleaseRecords>,
}

/// A package tool. Clones share its processes.
#[derive(Clone, Debug)]
pub struct PackageTool {
    id: ToolId,
    processes: Processes,
    description: Arc<OnceCell<Arc<ToolDescription>>>,
    cache: Option<DescriptionCache>,
}

/// Where calls run.
#[derive(Clone, Debug)]
enum Processes {
    /// In one process.
    One(Supervisor),
    /// In a process of the namespace. `None` means that the call belongs to no namespace.
    PerNamespace(NamespaceProcesses, Option<Arc<str>>),
}

impl PackageTool {
    /// Creates a tool whose calls all run in one process.
    pub fn new(id: ToolId, supervisor: Supervisor) -> Self {
        Self::with(id, Processes::One(supervisor))
    }

    /// Creates a tool whose calls run in a process of their namespace.
    pub(crate) fn per_namespace(id: ToolId, processes: NamespaceProcesses) -> Self {
        Self::with(id, Processes::PerNamespace(processes, None))
    }

    fn with(id: ToolId, processes: Processes) -> Self {
        Self { id, processes, description: Arc::default(), cache: None }
    }

    /// Returns the tool for calls that belong to `namespace`: what they do affects no other namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        let processes = match &self.processes {
            Processes::One(supervisor) => Processes::One(supervisor.clone()),
            Processes::PerNamespace(processes, _) => {
                Processes::PerNamespace(processes.clone(), Some(namespace.into()))
            }
        };
        Self { processes, ..self.clone() }
    }

    /// Keeps the description in `folder`.
    #[must_use]
    pub fn described_in(self, folder: &Path) -> Self {
        let path = match &self.processes {
            Processes::One(supervisor) => supervisor.path(),
            Processes::PerNamespace(processes, _) => processes.path(),
        };
        let cache = DescriptionCache::new(folder, path);
        Self { cache, ..self }
    }

    pub fn id(&self) -> ToolId {
        self.id
    }

    /// Returns a process for a call on `subject`.
    async fn acquire(&self, subject: String) -> Result<ProcessGuard, ToolError> {
        self.acquire_for(CallRequest { subject, ..CallRequest::default() }).await
    }

    async fn acquire_for(&self, request: CallRequest) -> Result<ProcessGuard, ToolError> {
        match &self.processes {
            Processes::One(supervisor) => supervisor.acquire_for(request).await,
            Processes::PerNamespace(processes, namespace) => {
                processes.acquire(namespace.as_deref().unwrap_or_default(), request).await
            }
        }
    }

    /// Returns a process for an operation on the release object `subject`, unless it is canceled before. It may take long: other
    /// namespaces may use all memory.
    pub async fn process(&self, subject: &str, cancel: &CancellationToken) -> Result<ProcessGuard, Failure> {
        let request =
            CallRequest { subject: subject.to_owned(), is_operation: true, ..CallRequest::default() };
        let canceled = || Failure::new(Category::Cancelled, "the operation was canceled before it began");
        Ok(cancel.run_until_cancelled(self.acquire_for(request)).await.ok_or_else(canceled)??)
    }

    /// Returns the tool's description. The tool is asked once.
    pub async fn description(&self) -> Result<Arc<ToolDescription>, Failure> {
        self.description.get_or_try_init(|| self.describe()).await.cloned()
    }

    async fn describe(&self) -> Result<Arc<ToolDescription>, Failure> {
        let answer = match self.cache.as_ref().and_then(DescriptionCache::read) {
            Some(cached) => cached,
            None => self.ask_description().await?,
        };
        let records = answer.records.ok_or_else(|| {
            Failure::new(
                Category::Internal,
                format!("the package tool {} breaks the contract: it declares no records", answer.name),
            )
        })?;
        Ok(Arc::new(ToolDescription {
            name: answer.name,
            version: answer.version,
            driver_version: answer.driver_version,
            formats: answer.formats.into_iter().map(PackageFormat::new).collect(),
            capabilities: answer.capabilities,
            records: Arc::new(convert::records(records)),
        }))
    }

    async fn ask_description(&self) -> Result<proto::DescribeResponse, Failure> {
        let guard = self.acquire("description".to_owned()).await?;
        let answer = client(&guard).describe(local(proto::DescribeRequest {})).await;
        let answer = checked(&guard, answer).await?;
        drop(guard);
        if let Processes::PerNamespace(processes, None) = &self.processes {
            processes.end_shared();
        }
        if let Some(cache) = &self.cache {
            cache.write(&answer);
        }
        Ok(answer)
    }

    /// The description, if the tool has been asked for it.
    pub(crate) fn known_description(&self) -> Option<&Arc<ToolDescription>> {
        self.description.get()
    }

    /// Reads a package.
    pub async fn inspect(&self, package: &PackageFile) -> Result<proto::PackageInfo, Failure> {
        let guard = self.acquire(package.digest.to_string()).await?;
        let request = proto::InspectRequest { package: Some(convert::package(package)) };
        let answer = client(&guard).inspect(local(request)).await;
        let answer = checked_local(&guard, answer).await?;
        match answer.outcome {
            Some(proto::inspect_response::Outcome::Info(info)) => Ok(info),
            Some(proto::inspect_response::Outcome::Failure(failure)) => Err(convert::failure(&failure)),
            None => Err(broken("Inspect")),
        }
    }

    /// Returns the digest of the canonical form of `values`.
    pub async fn canonical_digest(&self, values: &str) -> Result<Digest, Failure> {
        let guard = self.acquire(Digest::of(values.as_bytes()).to_string()).await?;
        let request = proto::CanonicalizeRequest { values: vec![convert::values(values)] };
        let answer = client(&guard).canonicalize(local(request)).await;
        let answer = checked_local(&guard, answer).await?;
        match answer.outcome {
            Some(proto::canonicalize_response::Outcome::Values(values)) => {
                Digest::parse(&values.digest).ok_or_else(|| broken("Canonicalize"))
            }
            Some(proto::canonicalize_response::Outcome::Failure(failure)) => Err(convert::failure(&failure)),
            None => Err(broken("Canonicalize")),
        }
    }

    /// Reads a release. `None` means that the cluster has no such release.
    pub async fn observe(
        &self,
        target: &Target,
        release: &ReleaseId,
    ) -> Result<Option<ReleaseDetails>, Failure> {
        let guard = self.acquire(format!("{} {release}", target.server)).await?;
        let request = proto::ObserveRequest {
            target: Some(convert::target(target)),
            release: Some(convert::release(release)),
            history: 0,
        };
        let answer = checked(&guard, client(&guard).observe(local(request)).await).await?;
        match answer.outcome {
            Some(proto::observe_response::Outcome::State(state)) => Ok(Some(convert::details(state))),
            Some(proto::observe_response::Outcome::Absent(_)) => Ok(None),
            Some(proto::observe_response::Outcome::Failure(failure)) => Err(convert::failure(&failure)),
            None => Err(broken("Observe")),
        }
    }
}

/// Operations. Their process is acquired before, with [`PackageTool::process`].
impl ProcessGuard {
    /// Installs or upgrades, unless the newest revision is deployed with these inputs. When `cancel` fires, returns after the
    /// tool has stopped touching the cluster.
    pub async fn apply(
        &self,
        order: ApplyOrder,
        cancel: &CancellationToken,
        on_step: impl FnMut(StepReport),
    ) -> Result<Applied, OperationFailure> {
        let (id, limit) = (order.operation_id.clone(), limit(&order.execution));
        let mut client = client(self);
        let opened = checked(self, client.apply(traced(convert::apply(order))).await).await?;
        let result = follow(self, opened, &id, limit, cancel, on_step).await?;
        convert::applied(result).ok_or_else(|| broken("Apply").into())
    }

    /// Restores an earlier revision, unless the newest revision is deployed after the same rollback. When `cancel` fires,
    /// returns after the tool has stopped touching the cluster.
    pub async fn rollback(
        &self,
        order: RollbackOrder,
        cancel: &CancellationToken,
        on_step: impl FnMut(StepReport),
    ) -> Result<Applied, OperationFailure> {
        let (id, limit) = (order.operation_id.clone(), limit(&order.execution));
        let mut client = client(self);
        let opened = checked(self, client.rollback(traced(convert::rollback(order))).await).await?;
        let result = follow(self, opened, &id, limit, cancel, on_step).await?;
        convert::applied(result).ok_or_else(|| broken("Rollback").into())
    }

    /// Removes a release. When `cancel` fires, returns after the tool has stopped touching the cluster.
    pub async fn remove(
        &self,
        order: RemoveOrder,
        cancel: &CancellationToken,
        on_step: impl FnMut(StepReport),
    ) -> Result<(), OperationFailure> {
        let (id, limit) = (order.operation_id.clone(), limit(&order.execution));
        let mut client = client(self);
        let opened = checked(self, client.remove(traced(convert::remove(order))).await).await?;
        follow(self, opened, &id, limit, cancel, on_step).await.map(|_| ())
    }
}

/// Follows an operation to its end. An operation that is stopped may have succeeded or failed before: its last event tells.
async fn follow(
    guard: &ProcessGuard,
    mut stream: Streaming<proto::OperationEvent>,
    operation_id: &str,
    limit: Duration,
    cancel: &CancellationToken,
    mut on_step: impl FnMut(StepReport),
) -> Result<proto::OperationResult, OperationFailure> {
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut stopped: Option<Failure> = None;
    loop {
        let stop_reason = tokio::select! {
            message = stream.message() => match failed(guard, message).await? {
                Some(message) => match ended(message, guard, &mut on_step) {
                    Some(ended) => return ended,
                    None => continue,
                },
                None => return Err(stopped.unwrap_or_else(|| broken("an operation")).into()),
            },
            () = cancel.cancelled(), if stopped.is_none() => {
                Failure::new(Category::Cancelled, "the operation was canceled")
            }
            () = &mut deadline => match stopped {
                Some(stopped) => {
                    guard.abandon();
                    return Err(stopped.into());
                }
                None => Failure::new(Category::Timeout, "the operation did not end within its time limit"),
            },
        };
        stop(guard, operation_id).await?;
        deadline.as_mut().reset(tokio::time::Instant::now() + LAST_EVENT);
        stopped = Some(stop_reason);
    }
}

/// Returns how an operation has ended, if this is its last event.
fn ended(
    message: proto::OperationEvent,
    guard: &ProcessGuard,
    on_step: &mut impl FnMut(StepReport),
) -> Option<Result<proto::OperationResult, OperationFailure>> {
    match message.event {
        Some(proto::operation_event::Event::Step(step)) => {
            let step = convert::step(step);
            guard.set_waiting(step.waiting);
            on_step(step);
            None
        }
        Some(proto::operation_event::Event::Result(result)) => {
            Some(result.outcome.is_some().then_some(result).ok_or_else(|| broken("an operation").into()))
        }
        Some(proto::operation_event::Event::Failure(failure)) => Some(Err(OperationFailure {
            failure: convert::failure(&failure),
            state: failure.state.map(convert::details),
        })),
        None => Some(Err(broken("an operation").into())),
    }
}

/// Returns the time limit of an operation, with time for the rollback of an atomic one.
fn limit(options: &ExecutionOptions) -> Duration {
    let directions = if options.atomic { 2 } else { 1 };
    options.timeout.saturating_mul(directions).saturating_add(GRACE)
}

async fn stop(guard: &ProcessGuard, operation_id: &str) -> Result<(), Failure> {
    let request = proto::CancelRequest { operation_id: operation_id.to_owned() };
    let asked = Instant::now();
    let answer = client(guard).cancel(local(request)).await;
    if asked.elapsed() >= STOP_LIMIT {
        guard.abandon();
    }
    checked(guard, answer).await.map(|_| ())
}

fn client(guard: &ProcessGuard) -> PackageToolClient<Channel> {
    PackageToolClient::new(guard.channel())
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT)
}

pub(crate) fn local<T>(message: T) -> tonic::Request<T> {
    let mut request = traced(message);
    request.set_timeout(LOCAL_LIMIT);
    request
}

/// A request that carries the current trace.
fn traced<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    trace::inject_headers(|key, value| {
        if let (Ok(key), Ok(value)) = (AsciiMetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            request.metadata_mut().insert(key, value);
        }
    });
    request
}

/// Returns the answer of a call.
async fn checked<T>(guard: &ProcessGuard, answer: Result<tonic::Response<T>, Status>) -> Result<T, Failure> {
    failed(guard, answer).await.map(tonic::Response::into_inner)
}

/// Returns the answer of a call that touches no cluster.
async fn checked_local<T>(
    guard: &ProcessGuard,
    answer: Result<tonic::Response<T>, Status>,
) -> Result<T, Failure> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(guard.local_failure(&status).await.into()),
    }
}

/// Converts the failure of a call.
async fn failed<T>(guard: &ProcessGuard, answer: Result<T, Status>) -> Result<T, Failure> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(status) => Err(guard.failure(&status).await.into()),
    }
}

fn broken(verb: &str) -> Failure {
    Failure::new(
        Category::Internal,
        format!("the package tool breaks the contract: {verb} ended without an answer"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_ours_only_if_the_tool_says_so() {
        let details = |inputs| ReleaseDetails {
            revision: 3,
            status: ReleaseStatus::Deployed,
            package_name: "hello".to_owned(),
            package_version: "1.0.0".to_owned(),
            values: None,
            inputs,
            rolled_back: None,
            inventory: ObjectRecords::default(),
            description: String::new(),
        };
        assert_eq!(details(None).seen().mark, None, "gone back to after a failed upgrade");
        let digest = InputDigest::parse(&"a".repeat(40));
        let mark = details(digest.clone()).seen().mark.unwrap();
        assert_eq!((Some(mark.digest), mark.revision), (digest, 3));
    }
}
