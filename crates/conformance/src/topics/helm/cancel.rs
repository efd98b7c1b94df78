//! An operation is cancelled while a hook runs, or while it applies with one of Helm's methods.

use chandler_tool::generated::tool::{ApplyMethod, StepKind};
use k8s_openapi::api::core::v1::ConfigMap;

use super::super::cancel::{OwnUser, recovers};
use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    package::TestPackage,
    request::RequestExt as _,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/cancel/install",
        [HelmRecords, Hooks],
        install,
        "After the response to Cancel no request of an install with a running hook follows."
    ),
    case!(
        "helm/cancel/remove",
        [HelmRecords, Hooks],
        remove,
        "The same holds for a removal with a running hook."
    ),
    case!("helm/cancel/busy", [HelmRecords], busy, "The same holds for both apply methods."),
    case!(
        "helm/cancel/dropped",
        [HelmRecords, Hooks],
        dropped,
        "Closing the stream of an operation with a running hook cancels it as well."
    ),
];

fn held(event: &str) -> Chart {
    Chart::config().hook(&Hook::new("held", event, HookEnd::Never))
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let request =
        context.install("web", &context.pack_chart(&held("pre-install"))?, "").on(user.target.clone());
    let id = request.operation_id.clone();
    let mut running = user.tool.begin_apply(request).await?;
    running.until_step(StepKind::Waiting).await?;
    user.cancel(context, running, &id).await?;
    let left = context.find::<ConfigMap>("web").await?;
    ensure!(
        left.is_none(),
        "objects were applied although the operation was cancelled during a previous hook"
    );
    recovers(context).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    context.apply(context.install("web", &context.pack_chart(&held("pre-delete"))?, "")).await?;
    let request = context.removal("web").on(user.target.clone());
    let id = request.operation_id.clone();
    let mut running = user.tool.begin_remove(request).await?;
    running.until_step(StepKind::Waiting).await?;
    user.cancel(context, running, &id).await?;
    context.get::<ConfigMap>("web").await?;
    context.remove(context.removal("web").with(|options| options.disable_hooks = true)).await
}

async fn busy(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::many_with_held(200)).await?;
    let mut user = OwnUser::create(context).await?;
    for method in [ApplyMethod::ServerSide, ApplyMethod::ClientSide] {
        let request = context.install("web", &package, "").with(|options| options.method = method.into());
        user.cancel_busy(context, request).await.map_err(|error| error.within(method.as_str_name()))?;
    }
    Ok(())
}

async fn dropped(context: &Context) -> Result<(), CaseError> {
    let mut user = OwnUser::create(context).await?;
    let package = context.pack_chart(&held("pre-install"))?;
    let request = context.install("web", &package, "").on(user.target.clone());
    let mut running = user.tool.begin_apply(request).await?;
    running.until_step(StepKind::Waiting).await?;
    drop(running);
    user.stays_quiet(context).await?;
    recovers(context).await
}
