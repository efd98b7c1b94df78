//! One process runs many operations whose hooks run.

use chandler_tool::generated::tool::StepKind;

use super::super::process::{HELD, serves_another};
use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
};

pub const CASES: &[Case] = &[case!(
    "helm/process/many",
    [HelmRecords, Hooks],
    many,
    "One process runs many operations that wait for hooks, and they delay no other."
)];

async fn many(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let held = Chart::new("held").hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let held = context.pack_chart(&held)?;
    let mut operations = Vec::new();
    for index in 0..HELD {
        let request = context.install(&format!("held-{index}"), &held, "");
        let id = request.operation_id.clone();
        let mut running = tool.begin_apply(request).await?;
        running.until_step(StepKind::Waiting).await?;
        operations.push((id, running));
    }
    let package = context.pack_chart(&Chart::config())?;
    serves_another(&tool, context.install("web", &package, ""), operations).await
}
