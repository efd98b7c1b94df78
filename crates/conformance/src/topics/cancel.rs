//! Cancellation: nothing leaves for the cluster after the answer.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chandler_tool::generated::tool::{ApplyMethod, FailureCategory, StepKind};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::{
    Ability, Case, CaseError, Request,
    chart::{CONFIG, Chart, Hook, HookEnd},
    context::Context,
    network::{BlackHole, elsewhere},
    objects::eventually,
    order::{Order as _, duration, recovering},
    tool::{Running, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "cancel/install",
        Some(Ability::Hooks),
        install,
        "A cancelled install sends nothing after the answer and is recovered from."
    ),
    case!("cancel/upgrade", Some(Ability::Wait), upgrade, "So does a cancelled upgrade."),
    case!("cancel/remove", Some(Ability::Hooks), remove, "So does a cancelled removal."),
    case!("cancel/busy", None, busy, "So does an operation that is cancelled while it applies many objects."),
    case!(
        "cancel/dropped",
        Some(Ability::Hooks),
        dropped,
        "Dropping the stream stops the operation as well."
    ),
    case!(
        "cancel/black-hole",
        None,
        black_hole,
        "An operation on a cluster that never answers can be cancelled at once."
    ),
    case!("cancel/nothing", None, nothing, "Cancelling what does not run succeeds."),
];

const ACCOUNT: &str = "cancelled";
/// How long a request that should not be there gets to show itself.
const QUIET: Duration = Duration::from_millis(1500);

/// Requests of the case's own account.
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

/// Cancels, and proves from the API server's own log that nothing came after the answer.
async fn cancelled(context: &Context, tool: &Tool, running: Running, id: &str) -> Result<(), CaseError> {
    let mut log = context.environment.host.requests();
    let was_running = tool.cancel(id).await?;
    let answered = now();
    ensure!(was_running, "Cancel says that the operation was not running");
    running.end().await?.failure(FailureCategory::Cancelled)?;
    let all = requests_of(context, log.as_mut()).await?;
    let late: Vec<_> = all.iter().filter(|request| request.received > answered).collect();
    let last = late
        .last()
        .map(|last| format!("{} {} {:?}", last.verb, last.uri, last.received.saturating_sub(answered)));
    ensure!(
        late.is_empty(),
        "after the answer the API server got {} requests, the last was {last:?} late",
        late.len()
    );
    let running = tool.describe().await?.running_operations;
    ensure!(running == 0, "{running} operations run after the answer");
    ensure!(!tool.cancel(id).await?, "Cancel says that a cancelled operation is running");
    Ok(())
}

/// Whatever the cancelled operation left, the next one makes good.
async fn recovered(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config().version("3.0.0"))?;
    let request = match context.observe("web").await? {
        Some(state) => {
            context.agree(&state).await?;
            recovering(context.upgrade("web", &package, "size: 3"))
        }
        None => context.install("web", &package, "size: 3"),
    };
    context.applied(request).await?;
    context.removed(context.removal("web")).await
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = (context.own_tool(), context.account(ACCOUNT, true).await?);
    let chart = Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let request = context.install("web", &context.pack(&chart)?, "").on(target);
    let id = request.operation_id.clone();
    let mut running = tool.begin_apply(request).await?;
    running.until(StepKind::Waiting).await?;
    cancelled(context, &tool, running, &id).await?;
    let left = context.find::<ConfigMap>("web").await?;
    ensure!(left.is_none(), "objects were applied although the operation was cancelled before them");
    recovered(context).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = (context.own_tool(), context.account(ACCOUNT, true).await?);
    context.applied(context.install("web", &context.pack(&Chart::config())?, "")).await?;
    let package = context.pack(&Chart::deployment())?;
    let request =
        context.upgrade("web", &package, "stuck: true").with(|options| options.wait = true).on(target);
    let id = request.operation_id.clone();
    let mut running = tool.begin_apply(request).await?;
    running.until(StepKind::Waiting).await?;
    cancelled(context, &tool, running, &id).await?;
    recovered(context).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = (context.own_tool(), context.account(ACCOUNT, true).await?);
    let chart = Chart::config().hook(&Hook::new("held", "pre-delete", HookEnd::Never));
    context.applied(context.install("web", &context.pack(&chart)?, "")).await?;
    let request = context.removal("web").on(target);
    let id = request.operation_id.clone();
    let mut running = tool.begin_remove(request).await?;
    running.until(StepKind::Waiting).await?;
    cancelled(context, &tool, running, &id).await?;
    context.get::<ConfigMap>("web").await?;
    context.removed(context.removal("web").with(|options| options.disable_hooks = true)).await
}

async fn busy(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = (context.own_tool(), context.account(ACCOUNT, true).await?);
    let mut chart = Chart::new("many");
    for index in 0..200 {
        let object = CONFIG.replace("{{ .Release.Name }}", &format!("many-{index}"));
        chart = chart.template(&format!("{index}.yaml"), object);
    }
    let package = context.pack(&chart)?;
    for method in [ApplyMethod::ServerSide, ApplyMethod::ClientSide] {
        let request = context.install("web", &package, "").with(|options| options.method = method.into());
        let request = request.on(target.clone());
        let id = request.operation_id.clone();
        let mut running = tool.begin_apply(request).await?;
        running.until(StepKind::Applying).await?;
        cancelled(context, &tool, running, &id).await?;
        recovered(context).await?;
    }
    Ok(())
}

async fn dropped(context: &Context) -> Result<(), CaseError> {
    let (tool, target) = (context.own_tool(), context.account(ACCOUNT, true).await?);
    let chart = Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let mut running = tool.begin_apply(context.install("web", &context.pack(&chart)?, "").on(target)).await?;
    running.until(StepKind::Waiting).await?;
    drop(running);
    eventually("the end of an operation whose stream was dropped", || async {
        Ok(tool.describe().await?.running_operations == 0)
    })
    .await?;
    let mut log = context.environment.host.requests();
    let late = requests_of(context, log.as_mut()).await?;
    ensure!(late.is_empty(), "after its end the API server got {late:?}");
    recovered(context).await
}

async fn black_hole(context: &Context) -> Result<(), CaseError> {
    let hole = BlackHole::open().await?;
    let mut target = elsewhere(context, hole.server.clone());
    target.request_timeout = duration(Duration::from_mins(1));
    let request = context.install("web", &context.pack(&Chart::config())?, "").on(target);
    let (id, started) = (request.operation_id.clone(), Instant::now());
    let running = context.tool.begin_apply(request).await?;
    ensure!(context.tool.cancel(&id).await?, "Cancel says that the operation was not running");
    running.end().await?.failure(FailureCategory::Cancelled)?;
    ensure!(started.elapsed() < Duration::from_secs(10), "cancelling took {:?}", started.elapsed());
    Ok(())
}

async fn nothing(context: &Context) -> Result<(), CaseError> {
    ensure!(
        !context.tool.cancel("no-such-operation").await?,
        "Cancel says that an unknown operation is running"
    );
    Ok(())
}
