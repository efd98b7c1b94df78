//! The methods of the contract.

use chandler_tool::generated::tool::{
    ApplyRequest, CancelRequest, CancelResponse, CanonicalizeRequest, CanonicalizeResponse, CompareRequest,
    DescribeRequest, DescribeResponse, InspectRequest, InspectResponse, ObserveRequest, ObserveResponse,
    OperationEvent, OperationResult, ReleaseAbsent, RemoveRequest, RenderRequest, RenderResponse,
    RollbackRequest, TestRequest, canonicalize_response, inspect_response, observe_response,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::{
    cluster::Cluster,
    dial::Gate,
    failure::Failure,
    generated::package_tool_server::PackageTool,
    lease::Lease,
    operation::{self, Steps},
    package::{FORMAT, Package},
    records, release,
    running::Running,
    values,
};

type Events = ReceiverStream<Result<OperationEvent, Status>>;

/// Serves the contract.
#[derive(Clone, Debug)]
pub struct Service {
    running: Running,
}

impl Service {
    pub fn new(lease: Lease) -> Self {
        Self { running: Running::new(lease) }
    }

    /// Runs an operation and returns its events.
    fn run<F>(&self, id: &str, work: impl FnOnce(Gate, Steps) -> F) -> Response<Events>
    where
        F: Future<Output = Result<OperationResult, Failure>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(16);
        let operation = self.running.start(id);
        let work = work(operation.gate.clone(), Steps(sender.clone()));
        tokio::spawn(operation::run(operation, sender, work));
        Response::new(ReceiverStream::new(receiver))
    }
}

#[tonic::async_trait]
impl PackageTool for Service {
    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse {
            name: "manifests".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            driver_version: env!("CARGO_PKG_VERSION").to_owned(),
            formats: vec![FORMAT.to_owned()],
            capabilities: Vec::new(),
            running_operations: u32::try_from(self.running.count()).unwrap_or(u32::MAX),
            requests: Vec::new(),
            records: Some(records::declaration()),
        }))
    }

    async fn inspect(&self, request: Request<InspectRequest>) -> Result<Response<InspectResponse>, Status> {
        let outcome = match Package::read(request.into_inner().package) {
            Ok(package) => inspect_response::Outcome::Info(package.info()),
            Err(failure) => inspect_response::Outcome::Failure(failure.into_message()),
        };
        Ok(Response::new(InspectResponse { outcome: Some(outcome) }))
    }

    async fn canonicalize(
        &self,
        request: Request<CanonicalizeRequest>,
    ) -> Result<Response<CanonicalizeResponse>, Status> {
        let outcome = match values::read(&request.into_inner().values) {
            Ok(values) => canonicalize_response::Outcome::Values(values::canonical_message(values)),
            Err(failure) => canonicalize_response::Outcome::Failure(failure.into_message()),
        };
        Ok(Response::new(CanonicalizeResponse { outcome: Some(outcome) }))
    }

    type ApplyStream = Events;

    async fn apply(&self, request: Request<ApplyRequest>) -> Result<Response<Events>, Status> {
        let mut request = request.into_inner();
        let id = request.operation_id.clone();
        Ok(self.run(&id, |gate, steps| async move {
            let release = release::checked(request.release.take())?;
            let cluster = Cluster::new(request.target.take(), &gate).await?;
            let release::Applied { state, unchanged } =
                release::apply(&cluster, &release, request, &steps).await?;
            Ok(operation::result(Some(state), unchanged))
        }))
    }

    type RollbackStream = Events;

    async fn rollback(&self, _: Request<RollbackRequest>) -> Result<Response<Events>, Status> {
        Err(Status::unimplemented("the tool does not declare the capability rollback"))
    }

    type CompareStream = Events;

    async fn compare(&self, _: Request<CompareRequest>) -> Result<Response<Events>, Status> {
        Err(Status::unimplemented("the tool does not declare the capability compare"))
    }

    type TestStream = Events;

    async fn test(&self, _: Request<TestRequest>) -> Result<Response<Events>, Status> {
        Err(Status::unimplemented("the tool does not declare the capability test"))
    }

    async fn render(&self, _: Request<RenderRequest>) -> Result<Response<RenderResponse>, Status> {
        Err(Status::unimplemented("the tool does not declare the capability render"))
    }

    async fn observe(&self, request: Request<ObserveRequest>) -> Result<Response<ObserveResponse>, Status> {
        let (request, lease) = (request.into_inner(), self.running.lease());
        let observed = async {
            let release = release::checked(request.release)?;
            let cluster = Cluster::new(request.target, &Gate::new(lease.clone())).await?;
            release::observe(&cluster, &release, request.history).await
        };
        let observed = tokio::select! {
            biased;
            () = lease.expired() => Err(operation::lease_expired()),
            observed = observed => observed,
        };
        let outcome = match observed {
            Ok(Some(state)) => observe_response::Outcome::State(state),
            Ok(None) => observe_response::Outcome::Absent(ReleaseAbsent {}),
            Err(failure) => observe_response::Outcome::Failure(failure.into_message()),
        };
        Ok(Response::new(ObserveResponse { outcome: Some(outcome) }))
    }

    type RemoveStream = Events;

    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<Events>, Status> {
        let request = request.into_inner();
        let id = request.operation_id.clone();
        Ok(self.run(&id, |gate, steps| async move {
            let release = release::checked(request.release)?;
            let cluster = Cluster::new(request.target, &gate).await?;
            let left =
                release::remove(&cluster, &release, request.options.unwrap_or_default(), &steps).await?;
            Ok(operation::result(left, false))
        }))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let was_running = self.running.cancel(&request.into_inner().operation_id).await;
        Ok(Response::new(CancelResponse { was_running }))
    }
}
