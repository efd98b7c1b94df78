//! Helm's ownership annotations.

use chandler_tool::generated::tool::ReleaseStatus;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    package::TestPackage,
    request::RequestExt as _,
    topics::rollback::Failed,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/ownership/take-over",
        [HelmRecords, TakeOwnership],
        take_over,
        "On request a release takes over objects, and Helm's annotation names it."
    ),
    case!(
        "helm/ownership/annotated",
        [HelmRecords],
        annotated,
        "An object has Helm's ownership annotations and label, so that helm accepts it."
    ),
    case!(
        "helm/ownership/rollback",
        [HelmRecords, Rollback],
        rollback,
        "A rollback does not delete an object whose annotation names another release."
    ),
];

const OWNER: &str = "meta.helm.sh/release-name";

fn shared() -> Chart {
    Chart::new("shared").template("shared.yaml", CONFIG.replace("{{ .Release.Name }}", "shared"))
}

async fn has_owner(context: &Context, expected: &str) -> Result<(), CaseError> {
    let config = context.get::<ConfigMap>("shared").await?;
    let owner = config.annotations().get(OWNER);
    ensure!(owner.is_some_and(|owner| owner == expected), "the owner is {owner:?}, expected {expected}");
    Ok(())
}

async fn take_over(context: &Context) -> Result<(), CaseError> {
    context.create_config("shared").await?;
    let package = context.pack_chart(&shared())?;
    // Another field manager has set the fields.
    let request = context.install("one", &package, "").with(|options| {
        options.take_ownership = true;
        options.force_conflicts = true;
    });
    context.apply(request).await?;
    has_owner(context, "one").await?;
    let request = context.install("two", &package, "").with(|options| options.take_ownership = true);
    context.apply(request).await?;
    has_owner(context, "two").await?;
    // The object belongs to another release now and is not deleted with this one.
    context.remove(context.removal("one")).await?;
    context.get::<ConfigMap>("shared").await.map(drop)
}

async fn annotated(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&shared())?;
    context.apply(context.install("one", &package, "")).await?;
    has_owner(context, "one").await?;
    let config = context.get::<ConfigMap>("shared").await?;
    let manager = config.labels().get("app.kubernetes.io/managed-by");
    ensure!(manager.is_some_and(|manager| manager == "Helm"), "the manager is {manager:?}");
    context.helm().run(&["upgrade", "one", &package.path, "--set", "size=3"]).await.map(drop)
}

async fn rollback(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::config()).await?;
    let owner = json!({OWNER: "other"});
    context.patch::<ConfigMap>("extra", &json!({"metadata": {"annotations": owner}})).await?;
    let state = context.tool.rollback(failed.rollback(context)).await?.state()?;
    ensure!(
        state.revision == 3 && state.status() == ReleaseStatus::Deployed,
        "after the rollback: {state:?}"
    );
    ensure!(
        context.find::<ConfigMap>("extra").await?.is_some(),
        "the rollback deleted an object of another release"
    );
    Ok(())
}
