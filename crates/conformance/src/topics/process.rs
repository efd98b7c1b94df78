//! One process for many operations, and its replacement.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use chandler_tool::{
    SupervisorConfig,
    generated::tool::{FailureCategory, ReleaseStatus, StepKind},
};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::crash::recovers;
use crate::{
    Case, CaseError,
    context::{Context, observe_failed},
    hold::Hold,
    objects::eventually,
    package::TestPackage,
    request::RequestExt as _,
    tool::{Running, Tool},
};

pub const CASES: &[Case] = &[
    case!("process/many", [], many, "One process runs many operations, and none of them delays another."),
    case!(
        "process/recycled",
        [],
        recycled,
        "A process that exceeds its memory limit is replaced first and ends after its operations."
    ),
    case!(
        "process/recycled-waiting",
        [Wait],
        recycled_waiting,
        "A process that exceeds its memory limit is replaced while its operation waits."
    ),
    case!(
        "process/lease",
        [],
        lease,
        "When the manager's Lease expires, requests in flight are aborted and no other is sent, until it is renewed."
    ),
];

/// How many operations run at the same time.
pub const HELD: usize = 20;

async fn many(context: &Context) -> Result<(), CaseError> {
    let (tool, slow) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let package = context.pack(&TestPackage::config()).await?;
    let hold = Hold::start(context).await?;
    let mut operations = Vec::new();
    for index in 0..HELD {
        let request = context.install(&format!("held-{index}"), &slow, json!({}));
        let id = request.operation_id.clone();
        operations.push((id, tool.begin_apply(request).await?));
    }
    hold.until_held(HELD).await?;
    let request = context.install("web", &package, json!({}));
    serves_another(&tool, request, operations).await?;
    hold.release().await
}

/// Checks that another operation is not delayed, and cancels the running ones.
pub async fn serves_another(
    tool: &Tool,
    request: chandler_tool::generated::tool::ApplyRequest,
    operations: Vec<(String, Running)>,
) -> Result<(), CaseError> {
    let (running, expected) = (tool.describe().await?.running_operations, operations.len());
    ensure!(usize::try_from(running) == Ok(expected), "{running} operations run, started were {expected}");
    let started = Instant::now();
    tool.apply(request).await?.state()?;
    let elapsed = started.elapsed();
    ensure!(elapsed < Duration::from_secs(5), "another operation took {elapsed:?}");
    for (id, running) in operations {
        tool.cancel(&id).await?;
        drop(running);
    }
    Ok(())
}

/// Returns a tool whose process always exceeds its memory limit.
fn limited_tool(context: &Context) -> Tool {
    Tool::new(SupervisorConfig {
        soft_memory_limit: 1 << 20,
        check_interval: Duration::from_secs(1),
        ..context.environment.tool.clone()
    })
}

async fn replaced(tool: &Tool, process: u32) -> Result<(), CaseError> {
    eventually("the replacement of a process that exceeds its memory limit", || async {
        Ok(tool.supervisor().acquire().await?.pid() != process)
    })
    .await
}

async fn ended(process: u32) -> Result<(), CaseError> {
    let path = format!("/proc/{process}");
    eventually("the end of the replaced process", || async { Ok(!Path::new(&path).exists()) }).await
}

async fn recycled(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (limited_tool(context), context.pack(&TestPackage::held()).await?);
    let hold = Hold::start(context).await?;
    let request = context.install("web", &package, json!({}));
    let digest = request.input_digest.clone();
    let running = tool.begin_apply(request).await?;
    let first = running.pid();
    hold.until_held(1).await?;
    replaced(&tool, first).await?;
    hold.release().await?;
    context.check_applied(running.end().await?, &digest).await?;
    ended(first).await
}

async fn recycled_waiting(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (limited_tool(context), context.pack(&TestPackage::stuck_deployment()).await?);
    let request = context.install("web", &package, json!({})).with(|options| options.wait = true);
    let digest = request.input_digest.clone();
    let mut running = tool.begin_apply(request).await?;
    let first = running.pid();
    running.until_step(StepKind::Waiting).await?;
    replaced(&tool, first).await?;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": null}}}});
    context.patch::<Deployment>("web", &selector).await?;
    context.check_applied(running.end().await?, &digest).await?;
    ended(first).await
}

/// A time since boot that does not come.
const NEVER: Duration = Duration::from_secs(1 << 32);

async fn lease(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let supervisor = tool.supervisor();
    supervisor.set_lease_until(NEVER);
    let hold = Hold::start(context).await?;
    let running = tool.begin_apply(context.install("web", &package, json!({}))).await?;
    hold.until_held(1).await?;
    supervisor.set_lease_until(Duration::ZERO);
    running.end().await?.failure(FailureCategory::Cancelled)?;
    hold.release().await?;
    let observe = || tool.observe(context.target(), context.release("web"), 0);
    observe_failed(observe().await?, FailureCategory::Cancelled)?;
    supervisor.set_lease_until(NEVER);
    eventually("a request after the Lease was renewed", || async { Ok(observe().await?.is_ok()) }).await?;
    recovers(context, ReleaseStatus::PendingInstall, 2).await
}
