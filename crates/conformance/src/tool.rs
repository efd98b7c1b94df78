//! The tool under test, called with the contract's messages.

use std::time::Duration;

use chandler_tool::{
    ProcessGuard, Supervisor, SupervisorConfig,
    generated::{
        template::{
            BuildRequest, BuildResponse, RenderRequest, RenderResponse,
            template_service_client::TemplateServiceClient,
        },
        tool as package_tool,
        tool::{
            ApplyRequest, CancelRequest, CanonicalValues, CanonicalizeRequest, CompareRequest,
            DescribeRequest, DescribeResponse, Failure, FailureCategory, InspectRequest, ObjectComparison,
            ObserveRequest, OperationEvent, Package, PackageInfo, Release, ReleaseState, RemoveRequest,
            RollbackRequest, Step, StepKind, Target, TestRequest, TestResult, Values, canonicalize_response,
            inspect_response, observe_response, operation_event, operation_result,
            package_tool_client::PackageToolClient,
        },
    },
};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use super::CaseError;

/// Timeout of a call that is not a stream.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// A process of the tool. Clones share it.
#[derive(Clone, Debug)]
pub struct Tool {
    supervisor: Supervisor,
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum End {
    State(Box<ReleaseState>),
    Absent,
    Comparison(Vec<ObjectComparison>),
    Tests(Vec<TestResult>),
    Failure(Box<Failure>),
}

/// An operation that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub steps: Vec<Step>,
    pub end: End,
    /// Whether the result says that nothing was changed.
    pub unchanged: bool,
    /// The fields that the result says were left to other field managers.
    pub ignored_fields: Vec<String>,
}

/// A running operation.
#[derive(Debug)]
pub struct Running {
    stream: Streaming<OperationEvent>,
    method: &'static str,
    steps: Vec<Step>,
    end: Option<End>,
    unchanged: bool,
    ignored_fields: Vec<String>,
    // The process runs at least as long as this exists.
    guard: ProcessGuard,
}

impl Tool {
    pub fn new(config: SupervisorConfig) -> Self {
        Self { supervisor: Supervisor::new(config) }
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    pub async fn describe(&self) -> Result<DescribeResponse, CaseError> {
        let (mut client, _guard) = self.client().await?;
        answer("Describe", client.describe(limited(DescribeRequest {})).await)
    }

    pub async fn inspect(&self, package: &Package) -> Result<Result<PackageInfo, Failure>, CaseError> {
        let (mut client, _guard) = self.client().await?;
        let request = InspectRequest { package: Some(package.clone()) };
        match answer("Inspect", client.inspect(limited(request)).await)?.outcome {
            Some(inspect_response::Outcome::Info(info)) => Ok(Ok(info)),
            Some(inspect_response::Outcome::Failure(failure)) => Ok(Err(failure)),
            None => Err(empty("Inspect")),
        }
    }

    pub async fn canonicalize(
        &self,
        values: Vec<Values>,
    ) -> Result<Result<CanonicalValues, Failure>, CaseError> {
        let (mut client, _guard) = self.client().await?;
        match answer("Canonicalize", client.canonicalize(limited(CanonicalizeRequest { values })).await)?
            .outcome
        {
            Some(canonicalize_response::Outcome::Values(values)) => Ok(Ok(values)),
            Some(canonicalize_response::Outcome::Failure(failure)) => Ok(Err(failure)),
            None => Err(empty("Canonicalize")),
        }
    }

    /// Returns `None` if the release does not exist.
    pub async fn observe(
        &self,
        target: Target,
        release: Release,
        history: u32,
    ) -> Result<Result<Option<ReleaseState>, Failure>, CaseError> {
        let (mut client, _guard) = self.client().await?;
        let request = ObserveRequest { target: Some(target), release: Some(release), history };
        match answer("Observe", client.observe(limited(request)).await)?.outcome {
            Some(observe_response::Outcome::State(state)) => Ok(Ok(Some(state))),
            Some(observe_response::Outcome::Absent(_)) => Ok(Ok(None)),
            Some(observe_response::Outcome::Failure(failure)) => Ok(Err(failure)),
            None => Err(empty("Observe")),
        }
    }

    /// Renders what an Apply would apply.
    pub async fn render_release(
        &self,
        request: package_tool::RenderRequest,
    ) -> Result<Result<package_tool::RenderedRelease, Failure>, CaseError> {
        let (mut client, _guard) = self.client().await?;
        match answer("Render", client.render(limited(request)).await)?.outcome {
            Some(package_tool::render_response::Outcome::Rendered(rendered)) => Ok(Ok(rendered)),
            Some(package_tool::render_response::Outcome::Failure(failure)) => Ok(Err(failure)),
            None => Err(empty("Render")),
        }
    }

    /// Returns whether the operation was running.
    pub async fn cancel(&self, operation_id: &str) -> Result<bool, CaseError> {
        let (mut client, _guard) = self.client().await?;
        let request = CancelRequest { operation_id: operation_id.to_owned() };
        Ok(answer("Cancel", client.cancel(limited(request)).await)?.was_running)
    }

    pub async fn render(&self, request: RenderRequest) -> Result<RenderResponse, CaseError> {
        let guard = self.supervisor.acquire().await?;
        answer("Render", TemplateServiceClient::new(guard.channel()).render(limited(request)).await)
    }

    pub async fn build(&self, request: BuildRequest) -> Result<BuildResponse, CaseError> {
        let guard = self.supervisor.acquire().await?;
        answer("Build", TemplateServiceClient::new(guard.channel()).build(limited(request)).await)
    }

    pub async fn begin_apply(&self, request: ApplyRequest) -> Result<Running, CaseError> {
        let (mut client, guard) = self.client().await?;
        Ok(Running::new("Apply", answer("Apply", client.apply(request).await)?, guard))
    }

    pub async fn begin_rollback(&self, request: RollbackRequest) -> Result<Running, CaseError> {
        let (mut client, guard) = self.client().await?;
        Ok(Running::new("Rollback", answer("Rollback", client.rollback(request).await)?, guard))
    }

    pub async fn compare(&self, request: CompareRequest) -> Result<Ended, CaseError> {
        let (mut client, guard) = self.client().await?;
        Running::new("Compare", answer("Compare", client.compare(request).await)?, guard).end().await
    }

    pub async fn test(&self, request: TestRequest) -> Result<Ended, CaseError> {
        let (mut client, guard) = self.client().await?;
        Running::new("Test", answer("Test", client.test(request).await)?, guard).end().await
    }

    pub async fn begin_remove(&self, request: RemoveRequest) -> Result<Running, CaseError> {
        let (mut client, guard) = self.client().await?;
        Ok(Running::new("Remove", answer("Remove", client.remove(request).await)?, guard))
    }

    pub async fn apply(&self, request: ApplyRequest) -> Result<Ended, CaseError> {
        self.begin_apply(request).await?.end().await
    }

    pub async fn rollback(&self, request: RollbackRequest) -> Result<Ended, CaseError> {
        self.begin_rollback(request).await?.end().await
    }

    pub async fn remove(&self, request: RemoveRequest) -> Result<Ended, CaseError> {
        self.begin_remove(request).await?.end().await
    }

    async fn client(&self) -> Result<(PackageToolClient<Channel>, ProcessGuard), CaseError> {
        let guard = self.supervisor.acquire().await?;
        Ok((PackageToolClient::new(guard.channel()), guard))
    }
}

impl Running {
    fn new(method: &'static str, stream: Streaming<OperationEvent>, guard: ProcessGuard) -> Self {
        let (steps, ignored_fields) = (Vec::new(), Vec::new());
        Self { stream, method, steps, end: None, unchanged: false, ignored_fields, guard }
    }

    /// Returns the ID of the process that runs it.
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Returns the next step of this kind.
    pub async fn until_step(&mut self, kind: StepKind) -> Result<Step, CaseError> {
        loop {
            let seen = self.steps.len();
            if !self.advance().await? {
                let steps = describe(&self.steps);
                return Err(CaseError::Violation(format!(
                    "{} ended before a step {}: steps {steps}, result {:?}",
                    self.method,
                    kind.as_str_name(),
                    self.end
                )));
            }
            if let Some(step) = self.steps.get(seen).filter(|step| step.kind() == kind) {
                return Ok(step.clone());
            }
        }
    }

    /// Returns how the operation ended. No event may follow the result.
    pub async fn end(mut self) -> Result<Ended, CaseError> {
        while self.advance().await? {}
        let after = self.stream.message().await.map_err(|status| call_error(self.method, status))?;
        ensure!(after.is_none(), "{} sent an event after its result: {after:?}", self.method);
        let end = self.end.ok_or_else(|| empty(self.method))?;
        let Self { steps, unchanged, ignored_fields, .. } = self;
        Ok(Ended { steps, end, unchanged, ignored_fields })
    }

    /// Returns when the stream is interrupted because the process was killed.
    pub async fn interrupted(mut self) -> Result<(), CaseError> {
        loop {
            match self.advance().await {
                Ok(true) => {}
                Ok(false) => {
                    return Err(CaseError::Violation(format!(
                        "{} ended although its process was killed",
                        self.method
                    )));
                }
                Err(CaseError::Call { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one event. Returns `false` if it was the result.
    async fn advance(&mut self) -> Result<bool, CaseError> {
        let message = self.stream.message().await.map_err(|status| call_error(self.method, status))?;
        let event = message.and_then(|message| message.event).ok_or_else(|| empty(self.method))?;
        self.end = match event {
            operation_event::Event::Step(step) => {
                self.steps.push(step);
                return Ok(true);
            }
            operation_event::Event::Failure(failure) => Some(End::Failure(Box::new(failure))),
            operation_event::Event::Result(result) => {
                self.unchanged = result.unchanged;
                self.ignored_fields = result.ignored_fields;
                match result.outcome {
                    Some(operation_result::Outcome::State(state)) => Some(End::State(Box::new(state))),
                    Some(operation_result::Outcome::Absent(_)) => Some(End::Absent),
                    Some(operation_result::Outcome::Comparison(comparison)) => {
                        Some(End::Comparison(comparison.objects))
                    }
                    Some(operation_result::Outcome::Tests(report)) => Some(End::Tests(report.tests)),
                    None => return Err(empty(self.method)),
                }
            }
        };
        Ok(false)
    }
}

impl Ended {
    pub fn state(self) -> Result<ReleaseState, CaseError> {
        match self.end {
            End::State(state) => Ok(*state),
            end => Err(CaseError::Violation(format!("expected a release, got {}", summary(&end)))),
        }
    }

    pub fn absent(self) -> Result<(), CaseError> {
        match self.end {
            End::Absent => Ok(()),
            end => Err(CaseError::Violation(format!("expected no release, got {}", summary(&end)))),
        }
    }

    pub fn comparison(self) -> Result<Vec<ObjectComparison>, CaseError> {
        match self.end {
            End::Comparison(objects) => Ok(objects),
            end => Err(CaseError::Violation(format!("expected a comparison, got {}", summary(&end)))),
        }
    }

    pub fn tests(self) -> Result<Vec<TestResult>, CaseError> {
        match self.end {
            End::Tests(tests) => Ok(tests),
            end => Err(CaseError::Violation(format!("expected results of tests, got {}", summary(&end)))),
        }
    }

    pub fn failure(self, category: FailureCategory) -> Result<Failure, CaseError> {
        let End::Failure(failure) = self.end else {
            return Err(CaseError::Violation(format!(
                "expected {}, got {}",
                category.as_str_name(),
                summary(&self.end)
            )));
        };
        expect_category(*failure, category)
    }
}

pub fn expect_category(failure: Failure, category: FailureCategory) -> Result<Failure, CaseError> {
    let got = failure.category();
    ensure!(
        got == category,
        "expected {}, got {}: {}",
        category.as_str_name(),
        got.as_str_name(),
        failure.message
    );
    ensure!(!failure.message.trim().is_empty(), "a failure {} without a message", got.as_str_name());
    Ok(failure)
}

pub fn describe(steps: &[Step]) -> String {
    let steps: Vec<_> =
        steps.iter().map(|step| format!("{} ({})", step.kind().as_str_name(), step.message)).collect();
    steps.join(", ")
}

fn summary(end: &End) -> String {
    match end {
        End::State(state) => format!("revision {} {}", state.revision, state.status().as_str_name()),
        End::Absent => "no release".to_owned(),
        End::Comparison(objects) => format!("a comparison of {} objects", objects.len()),
        End::Tests(tests) => format!("the results of {} tests", tests.len()),
        End::Failure(failure) => format!("{}: {}", failure.category().as_str_name(), failure.message),
    }
}

fn limited<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

fn answer<T>(method: &'static str, result: Result<Response<T>, Status>) -> Result<T, CaseError> {
    result.map(Response::into_inner).map_err(|status| call_error(method, status))
}

fn call_error(method: &'static str, status: Status) -> CaseError {
    CaseError::Call { method, status: Box::new(status) }
}

fn empty(method: &str) -> CaseError {
    CaseError::Violation(format!("{method} ended without a result"))
}
