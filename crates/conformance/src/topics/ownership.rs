//! Objects that belong to someone else.

use chandler_tool::generated::tool::FailureCategory;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    Ability, Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    order::Order as _,
};

pub const CASES: &[Case] = &[
    case!(
        "ownership/install",
        None,
        install,
        "An object that is nobody's stops an install, and stays as it was."
    ),
    case!(
        "ownership/upgrade",
        None,
        upgrade,
        "An object of another release stops an upgrade, and stays as it was."
    ),
    case!(
        "ownership/take-over",
        Some(Ability::TakeOwnership),
        take_over,
        "Asked to, a release takes objects over."
    ),
    case!(
        "ownership/fields",
        Some(Ability::ServerSideApply),
        fields,
        "Fields of another manager are a CONFLICT unless forced."
    ),
];

const OWNER: &str = "meta.helm.sh/release-name";

fn shared() -> Chart {
    Chart::new("shared").template("shared.yaml", CONFIG.replace("{{ .Release.Name }}", "shared"))
}

fn owner(config: &ConfigMap) -> Option<&str> {
    config.annotations().get(OWNER).map(String::as_str)
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let before = context.create_config("shared").await?;
    let request = context.install("one", &context.pack(&shared())?, "");
    let failure = context.refused(request, FailureCategory::Conflict).await?;
    ensure!(failure.message.contains("shared"), "the message does not name the object: {}", failure.message);
    let after = context.get::<ConfigMap>("shared").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed nevertheless");
    context.agree_absent("one").await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&shared())?;
    context.applied(context.install("one", &package, "")).await?;
    let before = context.get::<ConfigMap>("shared").await?;
    context.applied(context.install("two", &context.pack(&Chart::config())?, "")).await?;
    context.refused(context.upgrade("two", &package, ""), FailureCategory::Conflict).await?;
    let after = context.get::<ConfigMap>("shared").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed nevertheless");
    Ok(())
}

async fn take_over(context: &Context) -> Result<(), CaseError> {
    context.create_config("shared").await?;
    let package = context.pack(&shared())?;
    // Fields set by hand have another manager.
    let request = context.install("one", &package, "").with(|options| {
        options.take_ownership = true;
        options.force_conflicts = true;
    });
    context.applied(request).await?;
    let config = context.get::<ConfigMap>("shared").await?;
    ensure!(owner(&config) == Some("one"), "after taking it over the owner is {:?}", owner(&config));
    let request = context.install("two", &package, "").with(|options| options.take_ownership = true);
    context.applied(request).await?;
    let config = context.get::<ConfigMap>("shared").await?;
    ensure!(owner(&config) == Some("two"), "after taking it over the owner is {:?}", owner(&config));
    // What belongs to another release by now is not removed with this one.
    context.removed(context.removal("one")).await?;
    context.get::<ConfigMap>("shared").await.map(drop)
}

async fn fields(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    context.applied(context.install("web", &package, "size: 1")).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"values": "by hand"}})).await?;
    let failure =
        context.refused(context.upgrade("web", &package, "size: 2"), FailureCategory::Conflict).await?;
    ensure!(
        failure.message.contains("someone-else"),
        "the message does not name the manager: {}",
        failure.message
    );
    let request = context.upgrade("web", &package, "size: 2").with(|options| options.force_conflicts = true);
    context.applied(request).await?;
    let values = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        values.get("values").is_some_and(|text| text.contains("size")),
        "forced, the object has {values:?}"
    );
    Ok(())
}
