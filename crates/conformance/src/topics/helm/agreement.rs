//! The helm CLI shows the same releases as the tool.

use chandler_tool::generated::tool::{ApplyRequest, FailureCategory, ReleaseStatus};

use crate::{
    Case, CaseError,
    chart::Chart,
    context::Context,
    tool::{End, Tool},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/agreement/installed",
        [HelmRecords],
        installed,
        "helm list, history, get values, get manifest and status show an installed release."
    ),
    case!(
        "helm/agreement/upgraded",
        [HelmRecords],
        upgraded,
        "helm history shows the revisions of an upgraded release, and helm get values the values of each."
    ),
    case!(
        "helm/agreement/failed",
        [HelmRecords],
        failed,
        "helm shows a failed revision, and can roll it back."
    ),
    case!(
        "helm/agreement/removed",
        [HelmRecords],
        removed,
        "helm shows a removed release only if its history is kept."
    ),
    case!(
        "helm/agreement/uninstalled",
        [HelmRecords],
        uninstalled,
        "The tool observes what helm uninstall did."
    ),
    case!(
        "helm/agreement/names",
        [HelmRecords],
        names,
        "A release name that Helm does not accept is rejected."
    ),
];

async fn installed(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    let state = context.apply(context.install("web", &package, "size: 1\nname: one")).await?;
    ensure!(state.app_version == "app-1.0.0", "the app version is {:?}", state.app_version);
    let helm = context.helm();
    let manifest = helm.run(&["get", "manifest", "web"]).await?;
    ensure!(manifest.contains("kind: ConfigMap"), "`helm get manifest` prints {manifest}");
    let status = helm.run(&["status", "web"]).await?;
    ensure!(status.contains("STATUS: deployed"), "`helm status` prints {status}");
    Ok(())
}

async fn upgraded(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    context.apply(context.install("web", &package, "size: 1")).await?;
    let newer = context.pack_chart(&Chart::config().version("2.0.0"))?;
    context.apply(context.upgrade("web", &newer, "size: 2")).await?;
    let helm = context.helm();
    for revision in [1, 2] {
        let values = helm.values("web", revision).await?;
        ensure!(values.trim() == format!("{{\"size\":{revision}}}"), "revision {revision} has {values}");
    }
    Ok(())
}

async fn failed(context: &Context) -> Result<(), CaseError> {
    let good = context.pack_chart(&Chart::config())?;
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: -1}]}\n";
    let bad = context.pack_chart(&Chart::config().version("2.0.0").template("wrong.yaml", wrong))?;
    context.apply(context.install("web", &good, "size: 1")).await?;
    context.apply_fails(context.upgrade("web", &bad, "size: 2"), FailureCategory::Rejected).await?;
    let listed = context.helm().list("web").await?;
    ensure!(listed.as_ref().is_some_and(|listed| listed.status == "failed"), "`helm list` shows {listed:?}");
    context.helm().run(&["rollback", "web", "1"]).await?;
    let state = context.observe_existing("web").await?;
    ensure!(
        state.revision == 3 && state.status() == ReleaseStatus::Deployed,
        "after the rollback: {state:?}"
    );
    context.agree(&state).await
}

async fn removed(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    context.apply(context.install("web", &package, "")).await?;
    context.remove_keeping_history("web").await?;
    let history = context.helm().history("web").await?.unwrap_or_default();
    ensure!(history.iter().any(|past| past.status == "uninstalled"), "`helm history` shows {history:?}");
    context.remove(context.removal("web")).await
}

async fn uninstalled(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    context.apply(context.install("web", &package, "")).await?;
    context.helm().run(&["uninstall", "web", "--keep-history"]).await?;
    let state = context.observe_existing("web").await?;
    ensure!(state.status() == ReleaseStatus::Uninstalled, "the release is {}", state.status().as_str_name());
    context.agree(&state).await?;
    context.apply(context.install("web", &package, "")).await?;
    context.helm().run(&["uninstall", "web"]).await?;
    context.agree_absent("web").await
}

async fn names(context: &Context) -> Result<(), CaseError> {
    let tool: &Tool = &context.tool;
    let package = context.pack_chart(&Chart::config())?;
    for name in ["x".repeat(54), "under_score".to_owned(), "-web".to_owned()] {
        let request =
            ApplyRequest { release: Some(context.release(&name)), ..context.install("web", &package, "") };
        let end = tool.apply(request).await?.end;
        ensure!(matches!(end, End::Failure(_)), "the release {name} ended in {end:?}");
    }
    Ok(())
}
