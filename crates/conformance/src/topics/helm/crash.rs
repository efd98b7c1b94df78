//! A process is killed while a hook runs.

use chandler_tool::generated::tool::ReleaseStatus;
use k8s_openapi::api::core::v1::ConfigMap;

use super::super::crash::{kill_waiting, recovers};
use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    request::RequestExt as _,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/crash/install",
        [HelmRecords, Hooks],
        install,
        "An install that was interrupted during a hook can be recovered."
    ),
    case!(
        "helm/crash/upgrade",
        [HelmRecords, Hooks],
        upgrade,
        "An upgrade that was interrupted during a hook can be recovered."
    ),
    case!(
        "helm/crash/remove",
        [HelmRecords, Hooks],
        remove,
        "Removing again completes a removal that was interrupted during a hook."
    ),
];

fn held(event: &str) -> Chart {
    Chart::config().hook(&Hook::new("held", event, HookEnd::Never))
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let request = context.install("web", &context.pack_chart(&held("pre-install"))?, "");
    kill_waiting(&tool, tool.begin_apply(request).await?).await?;
    recovers(context, ReleaseStatus::PendingInstall, 2).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    context.apply(context.install("web", &context.pack_chart(&Chart::config())?, "size: 1")).await?;
    let request = context.upgrade("web", &context.pack_chart(&held("pre-upgrade"))?, "size: 2");
    kill_waiting(&tool, tool.begin_apply(request).await?).await?;
    recovers(context, ReleaseStatus::PendingUpgrade, 3).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    context.apply(context.install("web", &context.pack_chart(&held("pre-delete"))?, "")).await?;
    kill_waiting(&tool, tool.begin_remove(context.removal("web")).await?).await?;
    let state = context.observe_existing("web").await?;
    ensure!(state.status() == ReleaseStatus::Uninstalling, "the crash left {}", state.status().as_str_name());
    context.agree(&state).await?;
    context.remove(context.removal("web").with(|options| options.disable_hooks = true)).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    Ok(())
}
