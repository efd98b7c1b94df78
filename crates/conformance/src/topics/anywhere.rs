//! Operations that are interrupted at arbitrary times.

use std::time::Duration;

use chandler_tool::generated::tool::{ApplyRequest, FailureCategory, Package, ReleaseStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    package::TestPackage,
    request::recovering,
    tool::{End, Ended, Running, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "anywhere/killed",
        [],
        killed,
        "A process that is killed at any time leaves a release that the next process recovers."
    ),
    case!(
        "anywhere/cancelled",
        [],
        cancelled,
        "An operation that is cancelled at any time leaves a release that the next one recovers."
    ),
];

const OBJECTS: usize = 30;
/// Milliseconds after the start: from before the first request of such an operation to after its last.
const DELAYS: [u64; 6] = [0, 20, 50, 90, 140, 220];
const LABEL: &str = "conformance.chandler.dev/package";

#[derive(Clone, Copy, Debug)]
enum Interruption {
    Kill,
    Cancel,
}

impl Interruption {
    async fn after(self, delay: u64, tool: &Tool, running: Running, id: &str) -> Result<(), CaseError> {
        tokio::time::sleep(Duration::from_millis(delay)).await;
        match self {
            Self::Kill => tool.supervisor().kill(),
            Self::Cancel => drop(tool.cancel(id).await?),
        }
        drop(running);
        Ok(())
    }
}

fn many(version: &str) -> TestPackage {
    TestPackage::many(OBJECTS, &format!("{LABEL}: many")).version(version)
}

async fn killed(context: &Context) -> Result<(), CaseError> {
    interrupt(context, Interruption::Kill).await
}

async fn cancelled(context: &Context) -> Result<(), CaseError> {
    interrupt(context, Interruption::Cancel).await
}

async fn interrupt(context: &Context, how: Interruption) -> Result<(), CaseError> {
    let (old, new) = (context.pack(&many("1.0.0")).await?, context.pack(&many("2.0.0")).await?);
    for delay in DELAYS {
        let lifecycle = async {
            let tool = context.own_tool();
            let request = context.install("web", &old, json!({}));
            let id = request.operation_id.clone();
            how.after(delay, &tool, tool.begin_apply(request).await?, &id).await?;
            recovers(context, &old).await?;

            let tool = context.own_tool();
            let request = context.upgrade("web", &new, json!({}));
            let id = request.operation_id.clone();
            how.after(delay, &tool, tool.begin_apply(request).await?, &id).await?;
            recovers(context, &new).await?;

            let tool = context.own_tool();
            let request = context.removal("web");
            let id = request.operation_id.clone();
            how.after(delay, &tool, tool.begin_remove(request).await?, &id).await?;
            removes(context).await?;
            let left = objects(context).await?;
            ensure!(left == 0, "{left} objects are left");
            context.agree_absent("web").await
        };
        lifecycle.await.map_err(|error: CaseError| error.within(&format!("{how:?} after {delay} ms")))?;
    }
    Ok(())
}

/// Does what a controller does with the state that it finds.
async fn recovers(context: &Context, package: &Package) -> Result<(), CaseError> {
    let mut ended = context.tool.apply(next(context, package).await?).await?;
    if is_overtaken(&ended) {
        ended = context.tool.apply(next(context, package).await?).await?;
    }
    let state = ended.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "recovering left {}", state.status().as_str_name());
    context.agree(&state).await?;
    let found = objects(context).await?;
    ensure!(found == OBJECTS, "{found} of {OBJECTS} objects exist after recovering");
    Ok(())
}

/// Removes the release as a controller does.
async fn removes(context: &Context) -> Result<(), CaseError> {
    let mut ended = context.tool.remove(context.removal("web")).await?;
    if is_overtaken(&ended) {
        ended = context.tool.remove(context.removal("web")).await?;
    }
    ended.absent()
}

/// Returns whether an operation has to be repeated: the last request of a killed process can reach the API server after the
/// next process has read the records.
fn is_overtaken(ended: &Ended) -> bool {
    matches!(&ended.end, End::Failure(failure) if failure.category() == FailureCategory::Conflict)
}

/// Returns the request that the release needs next.
async fn next(context: &Context, package: &Package) -> Result<ApplyRequest, CaseError> {
    let values = json!({"size": 9});
    Ok(match context.observe("web").await? {
        None => context.install("web", package, values),
        Some(state) if state.status() == ReleaseStatus::Uninstalled => {
            context.install("web", package, values)
        }
        Some(_) => recovering(context.upgrade("web", package, values)),
    })
}

async fn objects(context: &Context) -> Result<usize, CaseError> {
    let selected = ListParams::default().labels(&format!("{LABEL}=many"));
    Ok(context.api::<ConfigMap>().list(&selected).await?.items.len())
}
