//! Which objects are compared and corrected.

use chandler_tool::generated::tool::{
    CompareRequest, ComparisonOutcome, FailureCategory, ObjectRef, ReleaseStatus,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{ResourceExt as _, api::DeleteParams};
use serde_json::json;

use super::{
    IMAGE, OTHER, change_image, change_value, compare, correct, expect, image, install, of, others_in_sync,
    records, run, value,
};
use crate::{
    CaseError,
    context::Context,
    package::{CONFIG, RELEASE, TestPackage},
};

/// The annotation that excludes an object.
const EXCLUDED: &str = "metadata:\n  annotations: {chandler.dev/drift: ignore}\n";

/// An object that the API server rejects.
const WRONG: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\n\
                     spec: {ports: [{port: 80}], selektor: {a: b}}\n";

/// A Job that does not run.
const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\n\
                   spec:\n  suspend: true\n  template:\n    spec:\n      restartPolicy: Never\n      \
                   containers: [{name: main, image: \"example.invalid/main:1\"}]\n";

pub async fn in_sync(context: &Context) -> Result<(), CaseError> {
    let mut state = install(context).await?;
    for round in ["install", "upgrade"] {
        let before = (records(context).await?, versions(context).await?);
        let compared = compare(context, &state).await?;
        let objects: Vec<_> = compared.iter().filter_map(|one| one.object.clone()).collect();
        ensure!(
            objects == state.inventory,
            "after the {round}, compared were {objects:?}, the inventory is {:?}",
            state.inventory
        );
        others_in_sync(&compared, ("", "")).map_err(|error| error.within(round))?;
        let corrected = correct(context, &state).await?;
        others_in_sync(&corrected, ("", "")).map_err(|error| error.within(round))?;
        let after = (records(context).await?, versions(context).await?);
        ensure!(
            before == after,
            "after the {round}, (name, resource version) were {before:?}, now {after:?}"
        );
        if round == "install" {
            let package = context.pack(&TestPackage::config().version("2.0.0")).await?;
            state = context.apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
        }
    }
    Ok(())
}

/// Returns the resource versions of the ConfigMaps of the release.
async fn versions(context: &Context) -> Result<Vec<Option<String>>, CaseError> {
    let mut versions = Vec::new();
    for name in ["web", OTHER] {
        versions.push(context.find::<ConfigMap>(name).await?.and_then(|object| object.resource_version()));
    }
    Ok(versions)
}

pub async fn changed(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    change_value(context, "changed by hand").await?;
    let compared = compare(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Drifted, &["/data/values"])?;
    others_in_sync(&compared, ("ConfigMap", "web"))?;
    let text = format!("{compared:?}");
    ensure!(!text.contains("by hand") && !text.contains("size"), "a value is in {text}");
    ensure!(value(context).await? == "changed by hand", "the comparison has changed the object");

    change_image(context).await?;
    let compared = compare(context, &state).await?;
    expect(&compared, ("Deployment", "web"), ComparisonOutcome::Drifted, &[IMAGE])
}

pub async fn corrected(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    let (recorded, good) = (records(context).await?, value(context).await?);
    for round in ["first", "second"] {
        change_value(context, "changed by hand").await?;
        change_image(context).await?;
        let other = context.get::<ConfigMap>(OTHER).await?.resource_version();
        let compared = correct(context, &state).await?;
        expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])?;
        expect(&compared, ("Deployment", "web"), ComparisonOutcome::Corrected, &[IMAGE])?;
        expect(&compared, ("ConfigMap", OTHER), ComparisonOutcome::InSync, &[])?;
        let (now, image) = (value(context).await?, image(context).await?);
        ensure!(now == good, "after the {round} correction the object has {now:?}");
        ensure!(image.as_deref() == Some("example.invalid/main:1"), "the image is {image:?}");
        let unchanged = context.get::<ConfigMap>(OTHER).await?.resource_version();
        ensure!(other == unchanged, "the correction has written an object that no other client has changed");
        others_in_sync(&compare(context, &state).await?, ("", ""))?;
    }
    let now = records(context).await?;
    ensure!(recorded == now, "the records (name, resource version) were {recorded:?}, now {now:?}");
    context.agree(&state).await?;
    context.remove(context.removal("web")).await
}

pub async fn missing(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    let before = context.get::<ConfigMap>("web").await?;
    context.api::<ConfigMap>().delete("web", &DeleteParams::default()).await?;
    let compared = compare(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Missing, &[])?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the comparison has created the object");

    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &[])?;
    let after = context.get::<ConfigMap>("web").await?;
    ensure!(
        (after.data, after.metadata.labels, after.metadata.annotations)
            == (before.data, before.metadata.labels, before.metadata.annotations),
        "the object was not created as before"
    );
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    context.agree(&state).await?;
    // The object belongs to the release: it is upgraded and removed with it.
    let package = context.pack(&TestPackage::config().version("2.0.0")).await?;
    context.apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
    context.remove(context.removal("web")).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the object is left after the removal");
    Ok(())
}

pub async fn requested(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    change_value(context, "changed by hand").await?;
    let other = json!({"data": {"values": "changed by hand"}});
    context.patch::<ConfigMap>(OTHER, &other).await?;
    let find = |name: &str| {
        let found = state.inventory.iter().find(|one| one.kind == "ConfigMap" && one.name == name);
        found.cloned().unwrap_or_default()
    };
    let unknown = ObjectRef { name: "not-in-the-package".to_owned(), ..find("web") };
    let request = CompareRequest {
        correct: true,
        objects: vec![find("web"), unknown],
        ..context.comparison("web", state.revision)
    };
    let compared = run(context, request).await?;
    let [web, unknown] = &compared[..] else {
        return Err(CaseError::Violation(format!("expected two results, got {compared:?}")));
    };
    ensure!(web.outcome() == ComparisonOutcome::Corrected, "the requested object is {web:?}");
    ensure!(
        unknown.outcome() == ComparisonOutcome::Unknown && !unknown.reason.is_empty(),
        "an object that the revision does not have is {unknown:?}"
    );
    let data = context.get::<ConfigMap>(OTHER).await?.data.unwrap_or_default();
    ensure!(data.values().any(|text| text == "changed by hand"), "another object was corrected: {data:?}");
    Ok(())
}

pub async fn excluded(context: &Context) -> Result<(), CaseError> {
    let excluded = CONFIG.replace(RELEASE, OTHER).replace("metadata:\n", EXCLUDED);
    let package = context.pack(&TestPackage::config().manifest(excluded)).await?;
    let state = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let change = json!({"data": {"values": "changed by hand"}});
    context.patch::<ConfigMap>(OTHER, &change).await?;
    let annotation = json!({"metadata": {"annotations": {"chandler.dev/drift": "ignore"}}});
    context.patch::<ConfigMap>("web", &annotation).await?;
    change_value(context, "changed by hand").await?;
    let compared = correct(context, &state).await?;
    for name in ["web", OTHER] {
        expect(&compared, ("ConfigMap", name), ComparisonOutcome::Ignored, &[])?;
        let data = context.get::<ConfigMap>(name).await?.data.unwrap_or_default();
        ensure!(data.values().any(|text| text == "changed by hand"), "{name} was corrected: {data:?}");
    }
    let annotation = json!({"metadata": {"annotations": {"chandler.dev/drift": null}}});
    context.patch::<ConfigMap>("web", &annotation).await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])
}

pub async fn job(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config().manifest(JOB)).await?;
    let state = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    expect(&correct(context, &state).await?, ("Job", "migrate"), ComparisonOutcome::Ignored, &[])?;
    context.api::<Job>().delete("migrate", &DeleteParams::background()).await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("Job", "migrate"), ComparisonOutcome::Ignored, &[])?;
    ensure!(context.find::<Job>("migrate").await?.is_none(), "the correction has created the Job again");
    others_in_sync(&compared, ("Job", "migrate"))
}

pub async fn other_owner(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    change_value(context, "changed by hand").await?;
    let owner = json!({"meta.helm.sh/release-name": "another"});
    context.patch::<ConfigMap>("web", &json!({"metadata": {"annotations": owner}})).await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Unknown, &[])?;
    let reason = &of(&compared, "ConfigMap", "web")?.reason;
    ensure!(reason.contains("another"), "the reason does not name the other release: {reason}");
    ensure!(value(context).await? == "changed by hand", "an object of another release was changed");
    others_in_sync(&compared, ("ConfigMap", "web"))
}

pub async fn revision(context: &Context) -> Result<(), CaseError> {
    let absent = context.tool.compare(context.comparison("web", 1)).await?;
    absent.failure(FailureCategory::Conflict)?;
    let state = install(context).await?;
    change_value(context, "changed by hand").await?;
    let request = |revision| CompareRequest { correct: true, ..context.comparison("web", revision) };
    let other = context.tool.compare(request(state.revision + 1)).await?;
    context.check_failed(other, FailureCategory::Conflict).await?;

    let bad = context.pack(&TestPackage::new("bad").manifest(WRONG)).await?;
    context.apply_fails(context.upgrade("web", &bad, json!({})), FailureCategory::Rejected).await?;
    let failed = context.observe_existing("web").await?;
    ensure!(failed.status() == ReleaseStatus::Failed, "after the failed upgrade: {failed:?}");
    for revision in [state.revision, failed.revision] {
        let ended = context.tool.compare(request(revision)).await?;
        context.check_failed(ended, FailureCategory::Conflict).await?;
    }
    ensure!(value(context).await? == "changed by hand", "an object was corrected");
    Ok(())
}

pub async fn bundle(context: &Context) -> Result<(), CaseError> {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {values: good}\n";
    let package = context.pack_bundle(&[("web.yaml", object.to_owned())])?;
    let state = context.apply(context.install("web", &package, json!({}))).await?;
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    change_value(context, "changed by hand").await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])?;
    ensure!(value(context).await? == "good", "the object was not corrected");
    context.agree(&state).await
}
