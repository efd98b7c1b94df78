//! Cancellation: the tool sends no request of the operation after the response.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chandler_tool::generated::tool::{ApplyRequest, FailureCategory, StepKind, Target};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    Case, CaseError, Request, RequestReader,
    context::Context,
    hold::Hold,
    network::{BlackHole, elsewhere},
    objects::eventually,
    package::TestPackage,
    request::{RequestExt as _, duration, recovering},
    tool::{Running, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "cancel/install",
        [],
        install,
        "After the response to Cancel no request of an install follows, and the release can be recovered."
    ),
    case!("cancel/upgrade", [], upgrade, "The same holds for an upgrade."),
    case!("cancel/upgrade-waiting", [Wait], upgrade_waiting, "The same holds for an upgrade that waits."),
    case!("cancel/remove", [], remove, "The same holds for a removal."),
    case!("cancel/busy", [], busy, "The same holds for an operation that applies many objects."),
    case!("cancel/dropped", [], dropped, "Closing the operation's stream cancels it as well."),
    case!(
        "cancel/black-hole",
        [],
        black_hole,
        "An operation on a cluster that never answers can be cancelled immediately."
    ),
    case!("cancel/nothing", [], nothing, "Cancelling an operation that does not run succeeds."),
];

const ACCOUNT: &str = "cancelled";
/// How long an operation may take to end after it was cancelled.
const PROMPT: Duration = Duration::from_secs(10);
/// How long the suite waits for requests that should not follow.
const QUIET: Duration = Duration::from_millis(1500);

/// A process and a user of the case's own, so that the audit log shows the requests of its operations.
pub struct OwnUser {
    pub tool: Tool,
    pub target: Target,
    log: Box<dyn RequestReader>,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl OwnUser {
    pub async fn create(context: &Context) -> Result<Self, CaseError> {
        Ok(Self {
            tool: context.own_tool(),
            target: context.account(ACCOUNT, true).await?,
            // Opened before the operation starts: it takes time to find the end of a long log.
            log: context.environment.host.requests(),
        })
    }

    /// Returns the requests that the API server received after a time.
    async fn requests_after(&mut self, context: &Context, time: Duration) -> Result<Vec<Request>, CaseError> {
        tokio::time::sleep(QUIET).await;
        let user = context.account_user(ACCOUNT);
        let mut requests = self.log.read().map_err(CaseError::Host)?;
        requests.retain(|request| request.user == user && request.received > time);
        Ok(requests)
    }

    /// Cancels an operation, and checks that no request follows the response.
    pub async fn cancel(&mut self, context: &Context, running: Running, id: &str) -> Result<(), CaseError> {
        let was_running = self.tool.cancel(id).await?;
        let responded = now();
        ensure!(was_running, "Cancel reports that the operation was not running");
        let left = self.tool.describe().await?.running_operations;
        ensure!(left == 0, "{left} operations run after the response");
        running.end().await?.failure(FailureCategory::Cancelled)?;
        let late = self.requests_after(context, responded).await?;
        let last = late
            .last()
            .map(|last| format!("{} {} {:?}", last.verb, last.uri, last.received.saturating_sub(responded)));
        ensure!(
            late.is_empty(),
            "the API server received {} requests after the response, the last one: {last:?} late",
            late.len()
        );
        ensure!(!self.tool.cancel(id).await?, "Cancel reports that a cancelled operation is running");
        Ok(())
    }

    /// Cancels an operation that applies a package [with many objects](TestPackage::many_with_held), and checks that the
    /// release recovers.
    pub async fn cancel_busy(&mut self, context: &Context, request: ApplyRequest) -> Result<(), CaseError> {
        let hold = Hold::start(context).await?;
        let request = request.on(self.target.clone());
        let id = request.operation_id.clone();
        let mut running = self.tool.begin_apply(request).await?;
        running.until_step(StepKind::Applying).await?;
        self.cancel(context, running, &id).await?;
        hold.release().await?;
        recovers(context).await
    }

    /// Checks that an operation whose stream was closed ends and sends nothing more.
    pub async fn stays_quiet(&mut self, context: &Context) -> Result<(), CaseError> {
        let closed = Instant::now();
        eventually("the end of an operation whose stream was closed", || async {
            Ok(self.tool.describe().await?.running_operations == 0)
        })
        .await?;
        let took = closed.elapsed();
        ensure!(took < PROMPT, "the operation ended {took:?} after its stream was closed");
        let late = self.requests_after(context, now()).await?;
        ensure!(late.is_empty(), "after the end of the operation the API server received {late:?}");
        Ok(())
    }
}

/// Checks that the next operation succeeds, whatever state the cancelled one left.
pub async fn recovers(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config().version("3.0.0")).await?;
    let request = match context.observe("web").await? {
        Some(state) => {
            context.agree(&state).await?;
            recovering(context.upgrade("web", &package, json!({"size": 3})))
        }
        None => context.install("web", &package, json!({"size": 3})),
    };
    context.apply(request).await?;
    context.remove(context.removal("web")).await
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::held()).await?;
    cancels_held(context, context.install("web", &package, json!({}))).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::held()).await?;
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({}))).await?;
    cancels_held(context, context.upgrade("web", &package, json!({}))).await
}

/// Cancels an operation that is held while it applies, and checks that the release recovers.
async fn cancels_held(context: &Context, request: ApplyRequest) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let hold = Hold::start(context).await?;
    let request = request.on(user.target.clone());
    let id = request.operation_id.clone();
    let running = user.tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    user.cancel(context, running, &id).await?;
    hold.release().await?;
    recovers(context).await
}

async fn upgrade_waiting(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({}))).await?;
    let package = context.pack(&TestPackage::stuck_deployment()).await?;
    let request = context
        .upgrade("web", &package, json!({}))
        .with(|options| options.wait = true)
        .on(user.target.clone());
    let id = request.operation_id.clone();
    let mut running = user.tool.begin_apply(request).await?;
    running.until_step(StepKind::Waiting).await?;
    user.cancel(context, running, &id).await?;
    recovers(context).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let hold = Hold::start(context).await?;
    let request = context.removal("web").on(user.target.clone());
    let id = request.operation_id.clone();
    let running = user.tool.begin_remove(request).await?;
    hold.until_held(1).await?;
    user.cancel(context, running, &id).await?;
    hold.release().await?;
    context.remove(context.removal("web")).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    Ok(())
}

async fn busy(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::many_with_held(200)).await?;
    let mut user = OwnUser::create(context).await?;
    user.cancel_busy(context, context.install("web", &package, json!({}))).await
}

async fn dropped(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    let hold = Hold::start(context).await?;
    let request = context.install("web", &package, json!({})).on(user.target.clone());
    let running = user.tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    drop(running);
    user.stays_quiet(context).await?;
    hold.release().await?;
    recovers(context).await
}

async fn black_hole(context: &Context) -> Result<(), CaseError> {
    let hole = BlackHole::open().await?;
    let mut target = elsewhere(context, hole.server.clone());
    target.request_timeout = duration(Duration::from_mins(1));
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({})).on(target);
    let (id, started) = (request.operation_id.clone(), Instant::now());
    let running = context.tool.begin_apply(request).await?;
    ensure!(context.tool.cancel(&id).await?, "Cancel reports that the operation was not running");
    running.end().await?.failure(FailureCategory::Cancelled)?;
    ensure!(started.elapsed() < PROMPT, "cancelling took {:?}", started.elapsed());
    Ok(())
}

async fn nothing(context: &Context) -> Result<(), CaseError> {
    ensure!(
        !context.tool.cancel("no-such-operation").await?,
        "Cancel reports that an unknown operation is running"
    );
    Ok(())
}
