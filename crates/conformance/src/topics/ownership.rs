//! Objects that do not belong to the release.

use chandler_tool::generated::tool::{ApplyOptions, FailureCategory, FieldConflicts};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
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
    case!(
        "ownership/conflict",
        [ServerSideApply],
        conflict,
        "A field conflict names the field, its manager, and the settings that resolve it; FORCE overwrites the field."
    ),
    case!(
        "ownership/ignored-fields",
        [ServerSideApply],
        ignored_fields,
        "With IGNORE_FIELDS the fields of another field manager stay and are named, and all other fields are applied."
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

/// Returns the data of the ConfigMap `web`.
async fn values_of(context: &Context) -> Result<String, CaseError> {
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    Ok(data.get("values").cloned().unwrap_or_default())
}

async fn conflict(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"values": "by hand"}})).await?;
    for conflicts in [FieldConflicts::Unspecified, FieldConflicts::Fail] {
        let request = context.upgrade("web", &package, json!({"size": 2}));
        let request = request.with(|options| options.field_conflicts = conflicts.into());
        let failure = context.apply_fails(request, FailureCategory::Conflict).await?;
        for text in [".data.values", "someone-else", "`conflicts: Force`", "`conflicts: IgnoreFields`"] {
            ensure!(failure.message.contains(text), "{text} is not in the message: {}", failure.message);
        }
        ensure!(values_of(context).await? == "by hand", "the field was changed");
    }
    let request = context.upgrade("web", &package, json!({"size": 2}));
    let request = request.with(|options| options.field_conflicts = FieldConflicts::Force.into());
    context.apply(request).await?;
    let values = values_of(context).await?;
    ensure!(values.contains("size"), "forced, the object has {values:?}");
    // The field belongs to the release again.
    context.apply(context.upgrade("web", &package, json!({"size": 3}))).await.map(drop)
}

async fn ignored_fields(context: &Context) -> Result<(), CaseError> {
    let ignore = |options: &mut ApplyOptions| {
        options.field_conflicts = FieldConflicts::IgnoreFields.into();
    };
    let other = CONFIG.replace(RELEASE, "other");
    let two = |replicas| TestPackage::deployment(replicas).manifest(CONFIG).manifest(other.clone());
    let package = context.pack(&two(1)).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"values": "by hand"}})).await?;
    let image = "example.invalid/main:by-hand";
    let containers = json!([{"name": "main", "image": image}]);
    // Other than those of all packages: the same value is no conflict.
    let by_hand = json!({"spec": {"replicas": 7, "template": {"spec": {"containers": containers}}}});
    context.patch::<Deployment>("web", &by_hand).await?;

    for size in [2, 3] {
        let package = context.pack(&two(size)).await?;
        let request = context.upgrade("web", &package, json!({"size": size})).with(ignore);
        let digest = request.input_digest.clone();
        let ended = context.tool.apply(request).await?;
        let named = &ended.ignored_fields;
        for (field, kind) in [(".data.values", "ConfigMap"), (".spec.replicas", "Deployment")] {
            let is_named = named.iter().any(|one| [field, kind, "web"].iter().all(|part| one.contains(part)));
            ensure!(is_named, "{field} of {kind} web is not among the ignored fields {named:?}");
        }
        ensure!(!named.iter().any(|one| one.contains("by hand")), "a value is in {named:?}");
        context.check_applied(ended, &digest).await?;
        ensure!(values_of(context).await? == "by hand", "a field of another manager was changed");
        let spec = context.get::<Deployment>("web").await?.spec.unwrap_or_default();
        let found = spec.template.spec.unwrap_or_default().containers.pop().unwrap_or_default().image;
        ensure!(
            spec.replicas == Some(7) && found.as_deref() == Some(image),
            "the Deployment has {:?} replicas and the image {found:?}",
            spec.replicas
        );
        let data = context.get::<ConfigMap>("other").await?.data.unwrap_or_default();
        let applied = format!("\"size\":{size}");
        ensure!(data.values().any(|text| text.contains(&applied)), "the other object has {data:?}");
    }
    Ok(())
}
