//! A process killed in the middle, and the next one that recovers.

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::core::v1::ConfigMap;

use super::packages::about;
use crate::{
    Ability, Case, CaseError,
    chart::{CONFIG, Chart, Hook, HookEnd},
    context::Context,
    order::{Order as _, recovering},
    tool::Running,
};

pub const CASES: &[Case] = &[
    case!("crash/install", Some(Ability::Hooks), install, "An install cut off by a crash is recovered from."),
    case!(
        "crash/install-waiting",
        Some(Ability::Wait),
        install_waiting,
        "So is one cut off while it waited."
    ),
    case!("crash/upgrade", Some(Ability::Hooks), upgrade, "An upgrade cut off by a crash is recovered from."),
    case!(
        "crash/upgrade-waiting",
        Some(Ability::Wait),
        upgrade_waiting,
        "So is one cut off while it waited."
    ),
    case!(
        "crash/remove",
        Some(Ability::Hooks),
        remove,
        "A removal cut off by a crash is finished by the next."
    ),
    case!(
        "crash/remove-apply",
        Some(Ability::Wait),
        remove_apply,
        "An install recovers from a removal that was cut off."
    ),
    case!("crash/restart", None, restart, "The first call after a crash is served by a new process at once."),
];

/// Follows an operation into the middle, and kills its process there.
async fn kill(tool: &crate::tool::Tool, mut running: Running) -> Result<(), CaseError> {
    running.until(StepKind::Waiting).await?;
    tool.supervisor().kill().await;
    running.broken().await
}

/// The release is left like this, and only an Apply that knows the operation is dead goes on.
async fn recovered(context: &Context, left: ReleaseStatus, revision: u32) -> Result<(), CaseError> {
    let state = context.observed("web").await?;
    ensure!(state.status() == left, "the crash left {}", state.status().as_str_name());
    context.agree(&state).await?;
    let package = context.pack(&Chart::config().version("3.0.0"))?;
    for request in [context.upgrade("web", &package, ""), context.install("web", &package, "")] {
        context
            .refused(request, FailureCategory::Conflict)
            .await
            .map_err(|e| about("without recover", &e))?;
    }
    let request = recovering(context.upgrade("web", &package, "size: 3"));
    let state = context.applied(request).await.map_err(|e| about("with recover", &e))?;
    ensure!(state.revision == revision, "recovering made revision {}, expected {revision}", state.revision);
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        data.values().any(|values| values.contains(r#""size":3"#)),
        "after recovering the object has {data:?}"
    );
    context.removed(context.removal("web")).await
}

fn held(event: &str) -> Chart {
    Chart::config().hook(&Hook::new("held", event, HookEnd::Never))
}

fn stuck() -> Chart {
    Chart::deployment().template("config.yaml", CONFIG)
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let request = context.install("web", &context.pack(&held("pre-install"))?, "");
    kill(&tool, tool.begin_apply(request).await?).await?;
    recovered(context, ReleaseStatus::PendingInstall, 2).await
}

async fn install_waiting(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let request =
        context.install("web", &context.pack(&stuck())?, "stuck: true").with(|options| options.wait = true);
    kill(&tool, tool.begin_apply(request).await?).await?;
    recovered(context, ReleaseStatus::PendingInstall, 2).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    context.applied(context.install("web", &context.pack(&Chart::config())?, "size: 1")).await?;
    let request = context.upgrade("web", &context.pack(&held("pre-upgrade"))?, "size: 2");
    kill(&tool, tool.begin_apply(request).await?).await?;
    recovered(context, ReleaseStatus::PendingUpgrade, 3).await
}

async fn upgrade_waiting(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    context.applied(context.install("web", &context.pack(&Chart::config())?, "size: 1")).await?;
    let request =
        context.upgrade("web", &context.pack(&stuck())?, "stuck: true").with(|options| options.wait = true);
    kill(&tool, tool.begin_apply(request).await?).await?;
    recovered(context, ReleaseStatus::PendingUpgrade, 3).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    context.applied(context.install("web", &context.pack(&held("pre-delete"))?, "")).await?;
    kill(&tool, tool.begin_remove(context.removal("web")).await?).await?;
    let state = context.observed("web").await?;
    ensure!(state.status() == ReleaseStatus::Uninstalling, "the crash left {}", state.status().as_str_name());
    context.agree(&state).await?;
    context.removed(context.removal("web").with(|options| options.disable_hooks = true)).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object is still there");
    Ok(())
}

async fn remove_apply(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let finalized = CONFIG.replace("metadata:\n", "metadata:\n  finalizers: [example.invalid/held]\n");
    let package = context.pack(&Chart::new("held").template("config.yaml", finalized))?;
    context.applied(context.install("web", &package, "")).await?;
    let request = context.removal("web").with(|options| options.wait = true);
    kill(&tool, tool.begin_remove(request).await?).await?;
    context.patch::<ConfigMap>("web", &serde_json::json!({"metadata": {"finalizers": null}})).await?;

    let package = context.pack(&Chart::config())?;
    context.refused(context.install("web", &package, ""), FailureCategory::Conflict).await?;
    let state = context.applied(recovering(context.upgrade("web", &package, "size: 1"))).await?;
    context.get::<ConfigMap>("web").await?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    context.removed(context.removal("web")).await
}

async fn restart(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let first = tool.supervisor().lease().await?.pid();
    tool.supervisor().kill().await;
    let second = tool.supervisor().lease().await?.pid();
    ensure!(first != second, "process {first} still serves after it was killed");
    tool.describe().await.map(drop)
}
