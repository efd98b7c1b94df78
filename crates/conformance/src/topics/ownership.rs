//! Objects that do not belong to the release.

use chandler_tool::generated::tool::FailureCategory;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    package::{CONFIG, RELEASE, TestPackage},
    request::RequestExt as _,
};

pub const CASES: &[Case] = &[
    case!(
        "ownership/install",
        [],
        install,
        "An install does not change an existing object that belongs to no release: CONFLICT."
    ),
    case!(
        "ownership/upgrade",
        [],
        upgrade,
        "An upgrade does not change an object of another release: CONFLICT."
    ),
    case!(
        "ownership/take-over",
        [TakeOwnership],
        take_over,
        "On request a release takes over objects, and the previous owner no longer deletes them."
    ),
    case!(
        "ownership/fields",
        [ServerSideApply],
        fields,
        "Fields of another field manager are a CONFLICT unless forced."
    ),
];

/// A package with an object whose name does not depend on the release.
fn shared() -> TestPackage {
    TestPackage::new("shared").manifest(CONFIG.replace(RELEASE, "shared"))
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let before = context.create_config("shared").await?;
    let request = context.install("one", &context.pack(&shared()).await?, json!({}));
    let failure = context.apply_fails(request, FailureCategory::Conflict).await?;
    ensure!(failure.message.contains("shared"), "the message does not name the object: {}", failure.message);
    let after = context.get::<ConfigMap>("shared").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed");
    context.agree_absent("one").await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&shared()).await?;
    context.apply(context.install("one", &package, json!({}))).await?;
    let before = context.get::<ConfigMap>("shared").await?;
    let own = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("two", &own, json!({}))).await?;
    let request = context.upgrade("two", &package, json!({}));
    context.apply_fails(request, FailureCategory::Conflict).await?;
    let after = context.get::<ConfigMap>("shared").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed");
    // Removing the release that failed does not delete the object either.
    context.remove(context.removal("two")).await?;
    context.get::<ConfigMap>("shared").await.map(drop)
}

async fn take_over(context: &Context) -> Result<(), CaseError> {
    context.create_config("shared").await?;
    let package = context.pack(&shared()).await?;
    // Another field manager has set the fields.
    let request = context.install("one", &package, json!({"owner": "one"})).with(|options| {
        options.take_ownership = true;
        options.force_conflicts = true;
    });
    context.apply(request).await?;
    let request = context.install("two", &package, json!({"owner": "two"}));
    context.apply(request.with(|options| options.take_ownership = true)).await?;
    let data = context.get::<ConfigMap>("shared").await?.data.unwrap_or_default();
    ensure!(data.values().any(|text| text.contains("two")), "the object has {data:?}");
    context.remove(context.removal("one")).await?;
    context.get::<ConfigMap>("shared").await?;
    context.remove(context.removal("two")).await?;
    ensure!(context.find::<ConfigMap>("shared").await?.is_none(), "the object still exists");
    Ok(())
}

async fn fields(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"values": "by hand"}})).await?;
    let request = context.upgrade("web", &package, json!({"size": 2}));
    let failure = context.apply_fails(request, FailureCategory::Conflict).await?;
    ensure!(
        failure.message.contains("someone-else"),
        "the message does not name the manager: {}",
        failure.message
    );
    let request =
        context.upgrade("web", &package, json!({"size": 2})).with(|options| options.force_conflicts = true);
    context.apply(request).await?;
    let values = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        values.get("values").is_some_and(|text| text.contains("size")),
        "forced, the object has {values:?}"
    );
    Ok(())
}
