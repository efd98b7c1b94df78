//! Which fields are compared, and that a correction keeps the others.

use chandler_tool::generated::tool::{CompareRequest, ComparisonOutcome, FieldConflicts, IgnoreRule};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    IMAGE, change_image, change_value, compare, correct, expect, image, install, others_in_sync, run,
    strategic, value,
};
use crate::{CaseError, context::Context, package::TestPackage};

pub async fn unmanaged(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    let added = json!({
        "metadata": {"labels": {"added": "by-hand"}, "annotations": {"added": "by-hand"}},
        "data": {"added": "by hand"},
    });
    context.patch::<ConfigMap>("web", &added).await?;
    let sidecar = json!([{"name": "sidecar", "image": "example.invalid/sidecar:1"}]);
    let patch = json!({"spec": {"revisionHistoryLimit": 3, "template": {"spec": {"containers": sidecar}}}});
    strategic(context, &patch).await?;
    others_in_sync(&compare(context, &state).await?, ("", ""))?;

    change_value(context, "changed by hand").await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])?;
    let object = context.get::<ConfigMap>("web").await?;
    let metadata = object.metadata;
    ensure!(
        metadata.labels.is_some_and(|labels| labels.contains_key("added"))
            && metadata.annotations.is_some_and(|annotations| annotations.contains_key("added"))
            && object.data.is_some_and(|data| data.contains_key("added")),
        "the correction has removed what another client has added"
    );
    let spec = context.get::<Deployment>("web").await?.spec.unwrap_or_default();
    let containers = spec.template.spec.unwrap_or_default().containers;
    ensure!(
        containers.len() == 2 && spec.revision_history_limit == Some(3),
        "the containers are {containers:?}"
    );
    Ok(())
}

pub async fn scale(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    scale_to(context, 3).await?;
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    for (round, replicas) in [("first", 3), ("second", 5)] {
        change_image(context).await?;
        scale_to(context, replicas).await?;
        let compared = correct(context, &state).await?;
        expect(&compared, ("Deployment", "web"), ComparisonOutcome::Corrected, &[IMAGE])
            .map_err(|error| error.within(round))?;
        let image = image(context).await?;
        ensure!(image.as_deref() == Some("example.invalid/main:1"), "the image is {image:?}");
        let now = context.get::<Deployment>("web").await?.spec.unwrap_or_default().replicas;
        ensure!(now == Some(replicas), "the {round} correction has scaled the Deployment to {now:?}");
        others_in_sync(&compare(context, &state).await?, ("", ""))?;
    }
    // Replicas that were not written through the subresource are a field like others.
    strategic(context, &json!({"spec": {"replicas": 2}})).await?;
    let compared = compare(context, &state).await?;
    expect(&compared, ("Deployment", "web"), ComparisonOutcome::Drifted, &["/spec/replicas"])
}

/// Scales as an autoscaler does.
async fn scale_to(context: &Context, replicas: i32) -> Result<(), CaseError> {
    let params = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    context.api::<Deployment>().patch_scale("web", &params, &patch).await?;
    Ok(())
}

pub async fn ignored(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    change_image(context).await?;
    let change = json!({"spec": {"replicas": 2, "template": {"metadata": {"labels": {"more": "label"}}}}});
    strategic(context, &change).await?;
    change_value(context, "changed by hand").await?;
    let rule = |kind: &str, name: &str, path: &str| IgnoreRule {
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: String::new(),
        paths: vec![path.to_owned(), "/not/there".to_owned()],
    };
    let request = |ignore: Vec<IgnoreRule>| CompareRequest {
        correct: true,
        ignore,
        ..context.comparison("web", state.revision)
    };
    let all = vec![rule("Deployment", "", "/spec"), rule("", "web", "/data")];
    others_in_sync(&run(context, request(all)).await?, ("", ""))?;
    ensure!(value(context).await? == "changed by hand", "an ignored field was corrected");

    let some =
        vec![rule("Deployment", "web", IMAGE), rule("Secret", "", "/data"), rule("", "other", "/data")];
    let compared = run(context, request(some)).await?;
    expect(&compared, ("Deployment", "web"), ComparisonOutcome::Corrected, &["/spec/replicas"])?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])?;
    let image = image(context).await?;
    ensure!(
        image.as_deref() == Some("example.invalid/main:by-hand"),
        "the correction has changed an ignored field: {image:?}"
    );
    let replicas = context.get::<Deployment>("web").await?.spec.unwrap_or_default().replicas;
    ensure!(replicas == Some(1), "the Deployment has {replicas:?} replicas");
    Ok(())
}

pub async fn secret(context: &Context) -> Result<(), CaseError> {
    let encoded = "apiVersion: v1\nkind: Secret\nmetadata: {name: encoded}\ndata: {password: aHVudGVyMjI=}\n";
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: text}\nstringData: {password: hunter22}\n";
    let package = context.pack(&TestPackage::config().manifest(encoded).manifest(text)).await?;
    let state = context.apply(context.install("web", &package, json!({}))).await?;
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    let names = ["encoded", "text"];
    for name in names {
        context.patch::<Secret>(name, &json!({"stringData": {"password": "correct horse"}})).await?;
    }
    let compared = correct(context, &state).await?;
    let shown = format!("{compared:?}");
    for value in ["hunter22", "aHVudGVyMjI", "correct horse", "Y29ycmVjdCBob3JzZQ"] {
        ensure!(!shown.contains(value), "a value is in {shown}");
    }
    for name in names {
        expect(&compared, ("Secret", name), ComparisonOutcome::Corrected, &["/data/password"])?;
        let data = context.get::<Secret>(name).await?.data.unwrap_or_default();
        ensure!(
            data.get("password").is_some_and(|value| value.0 == b"hunter22"),
            "the Secret {name} was not corrected"
        );
    }
    let rule = IgnoreRule { paths: vec!["/data/password".to_owned()], ..IgnoreRule::default() };
    context.patch::<Secret>("text", &json!({"stringData": {"password": "correct horse"}})).await?;
    let request = CompareRequest { ignore: vec![rule], ..context.comparison("web", state.revision) };
    others_in_sync(&run(context, request).await?, ("", ""))
}

pub async fn field_conflicts(context: &Context) -> Result<(), CaseError> {
    let state = install(context).await?;
    change_value(context, "changed by hand").await?;
    let request = |conflicts: FieldConflicts| CompareRequest {
        field_conflicts: conflicts.into(),
        ..context.comparison("web", state.revision)
    };
    others_in_sync(&run(context, request(FieldConflicts::IgnoreFields)).await?, ("", ""))?;
    for conflicts in [FieldConflicts::Unspecified, FieldConflicts::Fail, FieldConflicts::Force] {
        let compared = run(context, request(conflicts)).await?;
        expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Drifted, &["/data/values"])?;
    }
    Ok(())
}
