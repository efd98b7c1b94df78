//! One process for many operations, and its replacement.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use chandler_tool::{SupervisorConfig, generated::tool::StepKind};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use crate::{
    Ability, Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    objects::eventually,
    order::Order as _,
    tool::Tool,
};

pub const CASES: &[Case] = &[
    case!(
        "process/many",
        Some(Ability::Hooks),
        many,
        "One process runs many operations, and waiting ones hold up none."
    ),
    case!(
        "process/recycled",
        Some(Ability::Hooks),
        recycled,
        "A process that has grown too large is replaced first and ends after its calls."
    ),
];

async fn many(context: &Context) -> Result<(), CaseError> {
    const HELD: usize = 20;
    let tool = context.own_tool();
    let chart = Chart::new("held").hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let held = context.pack(&chart)?;
    let mut operations = Vec::new();
    for index in 0..HELD {
        let request = context.install(&format!("held-{index}"), &held, "");
        let id = request.operation_id.clone();
        let mut running = tool.begin_apply(request).await?;
        running.until(StepKind::Waiting).await?;
        operations.push((id, running));
    }
    let running = tool.describe().await?.running_operations;
    ensure!(running == 20, "{running} operations run, begun were {HELD}");
    let started = Instant::now();
    let package = context.pack(&Chart::config())?;
    tool.apply(context.install("web", &package, "")).await?.state()?;
    ensure!(
        started.elapsed() < Duration::from_secs(5),
        "beside {HELD} waiting ones it took {:?}",
        started.elapsed()
    );
    for (id, running) in operations {
        tool.cancel(&id).await?;
        drop(running);
    }
    Ok(())
}

async fn recycled(context: &Context) -> Result<(), CaseError> {
    // Any process is larger than this, so every look at it finds it too large.
    let tool = Tool::new(SupervisorConfig {
        soft_memory_limit: 16 << 20,
        check_interval: Duration::from_secs(1),
        ..context.environment.tool.clone()
    });
    let request = context.install("web", &context.pack(&Chart::deployment())?, "stuck: true");
    let request = request.with(|options| options.wait = true);
    let inputs = request.input_digest.clone();
    let mut running = tool.begin_apply(request).await?;
    let first = running.pid();
    running.until(StepKind::Waiting).await?;
    eventually("the replacement of a process that is too large", || async {
        Ok(tool.supervisor().lease().await?.pid() != first)
    })
    .await?;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": null}}}});
    context.patch::<Deployment>("web", &selector).await?;
    context.settled(running.end().await?, &inputs).await?;
    let process = format!("/proc/{first}");
    eventually("the end of the process that was replaced", || async { Ok(!Path::new(&process).exists()) })
        .await
}
