//! The input digest of revisions that the helm CLI creates.

use chandler_tool::generated::tool::{Package, StepKind};

use super::super::marks::has_mark;
use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/marks/same-write",
        [HelmRecords, Hooks],
        same_write,
        "The record of a release whose hook runs has the input digest."
    ),
    case!(
        "helm/marks/rolled-back",
        [HelmRecords],
        rolled_back,
        "A revision that helm rollback created has no input digest."
    ),
    case!(
        "helm/marks/upgraded",
        [HelmRecords],
        upgraded,
        "A revision that helm upgrade created has no input digest, and the tool's next one has."
    ),
    case!(
        "helm/marks/adopted",
        [HelmRecords],
        adopted,
        "A release that helm install created is upgraded like any other."
    ),
];

async fn same_write(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let held = Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let request = context.install("web", &context.pack_chart(&held)?, "");
    let (id, digest) = (request.operation_id.clone(), request.input_digest.clone());
    let mut running = tool.begin_apply(request).await?;
    running.until_step(StepKind::Waiting).await?;
    has_mark(context, &digest, 1).await?;
    let state = context.observe_existing("web").await?;
    ensure!(state.input_digest == digest, "Observe returns {:?} for a pending revision", state.input_digest);
    tool.cancel(&id).await.map(drop)
}

async fn installed(context: &Context) -> Result<Package, CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    let request = context.install("web", &package, "size: 1");
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    has_mark(context, &digest, 1).await?;
    Ok(package)
}

/// Checks that the newest revision has no input digest.
async fn unmarked(context: &Context, revision: u32) -> Result<(), CaseError> {
    let state = context.observe_existing("web").await?;
    ensure!(state.revision == revision, "the newest revision is {}", state.revision);
    ensure!(
        state.input_digest.is_empty(),
        "the helm CLI created revision {revision}, Observe returns the input digest {:?}",
        state.input_digest
    );
    context.agree(&state).await
}

async fn rolled_back(context: &Context) -> Result<(), CaseError> {
    let package = installed(context).await?;
    context.apply(context.upgrade("web", &package, "size: 2")).await?;
    context.helm().run(&["rollback", "web", "1"]).await?;
    unmarked(context, 3).await
}

async fn upgraded(context: &Context) -> Result<(), CaseError> {
    let package = installed(context).await?;
    context.helm().run(&["upgrade", "web", &package.path, "--set", "size=3"]).await?;
    unmarked(context, 2).await?;
    let request = context.upgrade("web", &package, "size: 4");
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    has_mark(context, &digest, 3).await
}

async fn adopted(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    context.helm().install("web", package.path.as_ref(), &["--set", "size=1"]).await?;
    unmarked(context, 1).await?;
    let state = context.apply(context.upgrade("web", &package, "size: 2")).await?;
    ensure!(state.revision == 2, "the upgrade created revision {}", state.revision);
    Ok(())
}
