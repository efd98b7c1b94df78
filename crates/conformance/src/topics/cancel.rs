//! Cancellation: the tool sends no request of the operation after the response.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chandler_tool::generated::tool::{FailureCategory, StepKind, Target};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    Case, CaseError, Request,
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
/// How long the suite waits for requests that should not follow.
const QUIET: Duration = Duration::from_millis(1500);

/// Returns a tool that the case may kill, and the cluster with a user whose requests only the case sends.
pub async fn own_user(context: &Context) -> Result<(Tool, Target), CaseError> {
    Ok((context.own_tool(), context.account(ACCOUNT, true).await?))
}

/// Returns the requests of the case's own user.
async fn requests_of(
    context: &Context,
    log: &mut dyn crate::RequestReader,
) -> Result<Vec<Request>, CaseError> {
    tokio::time::sleep(QUIET).await;
    let user = context.account_user(ACCOUNT);
    let all = log.read().map_err(CaseError::Host)?;
    Ok(all.into_iter().filter(|request| request.user == user).collect())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Cancels, and checks with the API server's audit log that no request follows the response.
pub async fn cancel(context: &Context, tool: &Tool, running: Running, id: &str) -> Result<(), CaseError> {
    let mut log = context.environment.host.requests();
    let was_running = tool.cancel(id).await?;
    let responded = now();
    ensure!(was_running, "Cancel reports that the operation was not running");
    running.end().await?.failure(FailureCategory::Cancelled)?;
    let all = requests_of(context, log.as_mut()).await?;
    let late: Vec<_> = all.iter().filter(|request| request.received > responded).collect();
    let last = late
        .last()
        .map(|last| format!("{} {} {:?}", last.verb, last.uri, last.received.saturating_sub(responded)));
    ensure!(
        late.is_empty(),
        "the API server received {} requests after the response, the last one: {last:?} late",
        late.len()
    );
    let running = tool.describe().await?.running_operations;
    ensure!(running == 0, "{running} operations run after the response");
    ensure!(!tool.cancel(id).await?, "Cancel reports that a cancelled operation is running");
    Ok(())
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
    let (tool, target) = own_user(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    let hold = Hold::start(context).await?;
    let request = context.install("web", &package, json!({})).on(target);
    let id = request.operation_id.clone();
    let running = tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    cancel(context, &tool, running, &id).await?;
    hold.release().await?;
    recovers(context).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = own_user(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({}))).await?;
    let hold = Hold::start(context).await?;
    let request = context.upgrade("web", &package, json!({})).on(target);
    let id = request.operation_id.clone();
    let running = tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    cancel(context, &tool, running, &id).await?;
    hold.release().await?;
    recovers(context).await
}

async fn upgrade_waiting(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = own_user(context).await?;
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({}))).await?;
    let package = context.pack(&TestPackage::stuck_deployment()).await?;
    let request = context.upgrade("web", &package, json!({})).with(|options| options.wait = true).on(target);
    let id = request.operation_id.clone();
    let mut running = tool.begin_apply(request).await?;
    running.until_step(StepKind::Waiting).await?;
    cancel(context, &tool, running, &id).await?;
    recovers(context).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = own_user(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let hold = Hold::start(context).await?;
    let request = context.removal("web").on(target);
    let id = request.operation_id.clone();
    let running = tool.begin_remove(request).await?;
    hold.until_held(1).await?;
    cancel(context, &tool, running, &id).await?;
    hold.release().await?;
    context.remove(context.removal("web")).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    Ok(())
}

async fn busy(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = own_user(context).await?;
    let package = context.pack(&TestPackage::many(200, "app: many")).await?;
    let request = context.install("web", &package, json!({})).on(target);
    let id = request.operation_id.clone();
    let mut running = tool.begin_apply(request).await?;
    running.until_step(StepKind::Applying).await?;
    cancel(context, &tool, running, &id).await?;
    recovers(context).await
}

async fn dropped(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = own_user(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    let hold = Hold::start(context).await?;
    let running = tool.begin_apply(context.install("web", &package, json!({})).on(target)).await?;
    hold.until_held(1).await?;
    drop(running);
    stays_quiet(context, &tool).await?;
    hold.release().await?;
    recovers(context).await
}

/// Checks that an operation whose stream was closed ends and sends nothing more.
pub async fn stays_quiet(context: &Context, tool: &Tool) -> Result<(), CaseError> {
    eventually("the end of an operation whose stream was closed", || async {
        Ok(tool.describe().await?.running_operations == 0)
    })
    .await?;
    let (ended, mut log) = (now(), context.environment.host.requests());
    let mut late = requests_of(context, log.as_mut()).await?;
    // The log has requests when they end.
    late.retain(|request| request.received > ended);
    ensure!(late.is_empty(), "after the end of the operation the API server received {late:?}");
    Ok(())
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
    ensure!(started.elapsed() < Duration::from_secs(10), "cancelling took {:?}", started.elapsed());
    Ok(())
}

async fn nothing(context: &Context) -> Result<(), CaseError> {
    ensure!(
        !context.tool.cancel("no-such-operation").await?,
        "Cancel reports that an unknown operation is running"
    );
    Ok(())
}
