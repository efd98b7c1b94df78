//! A process is killed during an operation, and the next process recovers the release.

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    hold::Hold,
    package::{CONFIG, TestPackage},
    request::{RequestExt as _, recovering},
    tool::{Running, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "crash/install",
        [],
        install,
        "An interrupted install is pending-install, and an Apply with recover succeeds."
    ),
    case!(
        "crash/install-waiting",
        [Wait],
        install_waiting,
        "So does one that was interrupted while waiting."
    ),
    case!(
        "crash/upgrade",
        [],
        upgrade,
        "An interrupted upgrade is pending-upgrade, and an Apply with recover succeeds."
    ),
    case!(
        "crash/upgrade-waiting",
        [Wait],
        upgrade_waiting,
        "So does one that was interrupted while waiting."
    ),
    case!(
        "crash/remove",
        [],
        remove,
        "An interrupted removal is uninstalling, and removing again completes it."
    ),
    case!("crash/remove-apply", [], remove_apply, "An install recovers from an interrupted removal."),
    case!(
        "crash/remove-apply-waiting",
        [Wait],
        remove_apply_waiting,
        "So it does if the removal was interrupted while waiting."
    ),
    case!("crash/restart", [], restart, "A new process serves the first call after a crash."),
];

/// Kills the process of an operation that is held.
async fn kill_held(tool: &Tool, running: Running, hold: Hold) -> Result<(), CaseError> {
    hold.until_held(1).await?;
    tool.supervisor().kill();
    running.interrupted().await?;
    hold.release().await
}

/// Kills the process of an operation when it waits.
pub async fn kill_waiting(tool: &Tool, mut running: Running) -> Result<(), CaseError> {
    running.until_step(StepKind::Waiting).await?;
    tool.supervisor().kill();
    running.interrupted().await
}

/// Checks the state that the crash left, and that only an Apply with recover succeeds.
pub async fn recovers(context: &Context, left: ReleaseStatus, revision: u32) -> Result<(), CaseError> {
    let state = context.observe_existing("web").await?;
    ensure!(state.status() == left, "the crash left {}", state.status().as_str_name());
    context.agree(&state).await?;
    let package = context.pack(&TestPackage::config().version("3.0.0")).await?;
    for request in [context.upgrade("web", &package, json!({})), context.install("web", &package, json!({}))]
    {
        context
            .apply_fails(request, FailureCategory::Conflict)
            .await
            .map_err(|error| error.within("without recover"))?;
    }
    let request = recovering(context.upgrade("web", &package, json!({"size": 3})));
    let state = context.apply(request).await.map_err(|error| error.within("with recover"))?;
    ensure!(
        state.revision == revision,
        "recovering created revision {}, expected {revision}",
        state.revision
    );
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        data.values().any(|values| values.contains(r#""size":3"#)),
        "after recovering the object has {data:?}"
    );
    context.remove(context.removal("web")).await
}

/// A Deployment that never becomes ready, and the ConfigMap of the package that recovers.
fn stuck() -> TestPackage {
    TestPackage::stuck_deployment().manifest(CONFIG)
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let hold = Hold::start(context).await?;
    let running = tool.begin_apply(context.install("web", &package, json!({}))).await?;
    kill_held(&tool, running, hold).await?;
    recovers(context, ReleaseStatus::PendingInstall, 2).await
}

async fn install_waiting(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&stuck()).await?);
    let request = context.install("web", &package, json!({})).with(|options| options.wait = true);
    kill_waiting(&tool, tool.begin_apply(request).await?).await?;
    recovers(context, ReleaseStatus::PendingInstall, 2).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({"size": 1}))).await?;
    let hold = Hold::start(context).await?;
    let running = tool.begin_apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
    kill_held(&tool, running, hold).await?;
    recovers(context, ReleaseStatus::PendingUpgrade, 3).await
}

async fn upgrade_waiting(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&stuck()).await?);
    let free = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &free, json!({"size": 1}))).await?;
    let request = context.upgrade("web", &package, json!({})).with(|options| options.wait = true);
    kill_waiting(&tool, tool.begin_apply(request).await?).await?;
    recovers(context, ReleaseStatus::PendingUpgrade, 3).await
}

/// Installs a release and kills the process that removes it.
async fn interrupt_removal(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    context.apply(context.install("web", &package, json!({}))).await?;
    let hold = Hold::start(context).await?;
    let running = tool.begin_remove(context.removal("web")).await?;
    kill_held(&tool, running, hold).await?;
    let state = context.observe_existing("web").await?;
    ensure!(state.status() == ReleaseStatus::Uninstalling, "the crash left {}", state.status().as_str_name());
    context.agree(&state).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    interrupt_removal(context).await?;
    context.remove(context.removal("web")).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    Ok(())
}

async fn remove_apply(context: &Context) -> Result<(), CaseError> {
    interrupt_removal(context).await?;
    applies_after_removal(context).await
}

async fn remove_apply_waiting(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::finalized()).await?);
    context.apply(context.install("web", &package, json!({}))).await?;
    let request = context.removal("web").with(|options| options.wait = true);
    kill_waiting(&tool, tool.begin_remove(request).await?).await?;
    context.patch::<ConfigMap>("web", &json!({"metadata": {"finalizers": null}})).await?;
    applies_after_removal(context).await
}

/// Checks that an Apply with recover succeeds after an interrupted removal.
async fn applies_after_removal(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({}));
    context.apply_fails(request, FailureCategory::Conflict).await?;
    let state = context.apply(recovering(context.upgrade("web", &package, json!({"size": 1})))).await?;
    context.get::<ConfigMap>("web").await?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    context.remove(context.removal("web")).await
}

async fn restart(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let first = tool.supervisor().acquire().await?.pid();
    tool.supervisor().kill();
    let second = tool.supervisor().acquire().await?.pid();
    ensure!(first != second, "process {first} still serves after it was killed");
    tool.describe().await.map(drop)
}
