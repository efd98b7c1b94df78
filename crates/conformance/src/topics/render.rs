//! Rendering what an Apply would apply, which changes nothing.

use chandler_tool::generated::tool::{
    FailureCategory, Package, RenderRequest, RenderedObject, RenderedRelease,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{lifecycle::written, rollback::Failed};
use crate::{
    Case, CaseError,
    context::Context,
    package::{CONFIG, RELEASE, TestPackage},
    request::IntoValues,
    tool::expect_category,
};

pub const CASES: &[Case] = &[
    case!(
        "render/install",
        [Render],
        install,
        "The objects of a release that does not exist are rendered, and nothing is created."
    ),
    case!(
        "render/upgrade",
        [Render],
        upgrade,
        "An upgrade is rendered with the objects of the deployed revision, and neither records nor objects are written."
    ),
    case!(
        "render/applied",
        [Render],
        applied,
        "What was rendered is what the revision that Apply creates records, with the same values digest."
    ),
    case!(
        "render/failed",
        [Render],
        failed,
        "After a failed upgrade, the base is the deployed revision, not the newest one."
    ),
    case!(
        "render/stored",
        [Render],
        stored,
        "Without a package, only the objects of the stored revision are returned."
    ),
    case!(
        "render/unserved",
        [Render],
        unserved,
        "Objects of kinds that the cluster does not serve are rendered: the package may create their CRDs first."
    ),
    case!(
        "render/lists",
        [Render],
        lists,
        "The objects of lists, also of nested ones, are rendered one by one, with the kind that a typed list implies."
    ),
    case!("render/bundle", [Render, Manifests], bundle, "The objects of a bundle are rendered, too."),
    case!(
        "render/invalid",
        [Render],
        invalid,
        "Values that cannot be parsed are INVALID_VALUES, and the message does not quote them."
    ),
];

/// Renders, and checks that the tool has succeeded.
pub(in crate::topics) async fn render(
    context: &Context,
    request: RenderRequest,
) -> Result<RenderedRelease, CaseError> {
    context.tool.render_release(request).await?.map_err(|failure| {
        CaseError::Violation(format!(
            "Render failed: {} {}",
            failure.category().as_str_name(),
            failure.message
        ))
    })
}

/// Returns kind and name of objects, sorted.
pub(in crate::topics) fn names(objects: &[RenderedObject]) -> Vec<String> {
    let name = |object: &RenderedObject| {
        let object = object.object.clone().unwrap_or_default();
        format!("{} {}", object.kind, object.name)
    };
    let mut names: Vec<_> = objects.iter().map(name).collect();
    names.sort();
    names
}

/// Returns the content of the ConfigMap `web`.
fn content(objects: &[RenderedObject]) -> Result<String, CaseError> {
    let is_it = |object: &&RenderedObject| {
        object.object.as_ref().is_some_and(|object| object.kind == "ConfigMap" && object.name == "web")
    };
    let found = objects.iter().find(is_it);
    let found = found.ok_or_else(|| CaseError::Violation(format!("the objects are {:?}", names(objects))))?;
    let object: Value = serde_json::from_slice(&found.json)
        .map_err(|error| CaseError::Violation(format!("an object is no JSON: {error}")))?;
    Ok(object["data"]["values"].as_str().unwrap_or_default().to_owned())
}

async fn install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let rendered = render(context, context.rendering("web", &package, json!({"size": 1}))).await?;
    ensure!(
        rendered.newest.is_none() && rendered.base.is_none(),
        "there is a revision: {:?}",
        rendered.newest
    );
    ensure!(
        rendered.base_objects.is_empty(),
        "there are stored objects: {:?}",
        names(&rendered.base_objects)
    );
    ensure!(names(&rendered.objects) == ["ConfigMap web"], "the objects are {:?}", names(&rendered.objects));
    let object = rendered.objects.first().and_then(|object| object.object.clone()).unwrap_or_default();
    ensure!(object.namespace == context.namespace, "the object is in namespace {:?}", object.namespace);
    let values = content(&rendered.objects)?;
    ensure!(values.contains(r#""size":1"#), "the object has {values}");
    ensure!(rendered.package_version == "1.0.0", "the version is {:?}", rendered.package_version);
    context.agree_absent("web").await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the object was created");
    Ok(())
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let deployed = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let extra = CONFIG.replace(RELEASE, "extra");
    let newer = context.pack(&TestPackage::config().version("2.0.0").manifest(extra)).await?;
    let before = written(context).await?;
    let rendered = render(context, context.rendering("web", &newer, json!({"size": 2}))).await?;
    let after = written(context).await?;
    ensure!(before == after, "(name, resource version) were {before:?}, now {after:?}");
    let (newest, base) = (rendered.newest.unwrap_or_default(), rendered.base.unwrap_or_default());
    ensure!(newest == deployed, "the newest revision is {newest:?}, deployed is {deployed:?}");
    ensure!(base == deployed, "the base is {base:?}, deployed is {deployed:?}");
    ensure!(
        names(&rendered.base_objects) == ["ConfigMap web"],
        "stored: {:?}",
        names(&rendered.base_objects)
    );
    let expected = ["ConfigMap extra", "ConfigMap web"];
    ensure!(names(&rendered.objects) == expected, "the objects are {:?}", names(&rendered.objects));
    let (old, new) = (content(&rendered.base_objects)?, content(&rendered.objects)?);
    ensure!(old.contains(r#""size":1"#) && new.contains(r#""size":2"#), "the values are {old}, then {new}");
    ensure!(context.find::<ConfigMap>("extra").await?.is_none(), "an object was created");
    context.agree(&deployed).await
}

async fn applied(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let rendered = render(context, context.rendering("web", &package, json!({"size": 1}))).await?;
    let state = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    ensure!(
        rendered.values_digest == state.values_digest,
        "the digest was {}, then {}",
        rendered.values_digest,
        state.values_digest
    );
    let stored = render(context, without_package(context)).await?;
    ensure!(
        stored.base_objects == rendered.objects,
        "rendered were {:?}, the revision has {:?}",
        names(&rendered.objects),
        names(&stored.base_objects)
    );
    let recorded: Vec<_> = rendered.objects.into_iter().filter_map(|object| object.object).collect();
    ensure!(
        recorded == state.inventory,
        "rendered were {recorded:?}, the inventory is {:?}",
        state.inventory
    );
    Ok(())
}

async fn failed(context: &Context) -> Result<(), CaseError> {
    Failed::create(context, TestPackage::config()).await?;
    let package = context.pack(&TestPackage::config().version("3.0.0")).await?;
    let before = written(context).await?;
    let rendered = render(context, context.rendering("web", &package, json!({"size": 3}))).await?;
    let after = written(context).await?;
    ensure!(before == after, "(name, resource version) were {before:?}, now {after:?}");
    let (newest, base) = (rendered.newest.unwrap_or_default(), rendered.base.unwrap_or_default());
    ensure!(
        (newest.revision, base.revision) == (2, 1),
        "the revisions are {} and {}",
        newest.revision,
        base.revision
    );
    let values = content(&rendered.base_objects)?;
    ensure!(values.contains(r#""size":1"#), "the stored object has {values}");
    Ok(())
}

async fn stored(context: &Context) -> Result<(), CaseError> {
    let absent = render(context, without_package(context)).await?;
    ensure!(absent == RenderedRelease::default(), "there is no release, but the result is {absent:?}");
    let package = context.pack(&TestPackage::config()).await?;
    let state = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let stored = render(context, without_package(context)).await?;
    ensure!(stored.base == Some(state), "the base is {:?}", stored.base);
    ensure!(stored.objects.is_empty(), "objects were rendered: {:?}", names(&stored.objects));
    ensure!(names(&stored.base_objects) == ["ConfigMap web"], "stored: {:?}", names(&stored.base_objects));
    Ok(())
}

async fn unserved(context: &Context) -> Result<(), CaseError> {
    let widget = "apiVersion: example.invalid/v1\nkind: Widget\nmetadata: {name: unserved}\n";
    let package = context.pack(&TestPackage::config().manifest(widget)).await?;
    let rendered = render(context, context.rendering("web", &package, json!({}))).await?;
    let expected = ["ConfigMap web", "Widget unserved"];
    ensure!(names(&rendered.objects) == expected, "the objects are {:?}", names(&rendered.objects));
    context.agree_absent("web").await
}

async fn lists(context: &Context) -> Result<(), CaseError> {
    let typed =
        "apiVersion: v1\nkind: SecretList\nitems:\n- metadata: {name: typed}\n  stringData: {key: value}\n";
    let nested = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  \
                  - apiVersion: v1\n    kind: Secret\n    metadata: {name: nested}\n    stringData: {key: value}\n";
    let package = context.pack(&TestPackage::config().manifest(typed).manifest(nested)).await?;
    let rendered = render(context, context.rendering("web", &package, json!({}))).await?;
    let expected = ["ConfigMap web", "Secret nested", "Secret typed"];
    ensure!(names(&rendered.objects) == expected, "the objects are {:?}", names(&rendered.objects));
    for object in &rendered.objects {
        let parsed: Value = serde_json::from_slice(&object.json)
            .map_err(|error| CaseError::Violation(format!("an object is no JSON: {error}")))?;
        let named = object.object.clone().unwrap_or_default();
        let is_same = parsed["kind"] == *named.kind && parsed["apiVersion"] == *named.api_version;
        ensure!(is_same, "{} {} has another kind in its text", named.kind, named.name);
    }
    context.agree_absent("web").await
}

async fn bundle(context: &Context) -> Result<(), CaseError> {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {values: plain}\n";
    let package: Package = context.pack_bundle(&[("config.yaml", text.to_owned())])?;
    let rendered = render(context, context.rendering("web", &package, "")).await?;
    ensure!(content(&rendered.objects)? == "plain", "the objects are {:?}", names(&rendered.objects));
    context.agree_absent("web").await?;
    let objects = context.api::<ConfigMap>().list(&ListParams::default()).await?;
    ensure!(objects.iter().all(|object| object.name_any() != "web"), "the object was created");
    Ok(())
}

async fn invalid(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let request = RenderRequest {
        values: vec!["password: [canary-value".into_values()],
        ..context.rendering("web", &package, json!({}))
    };
    match context.tool.render_release(request).await? {
        Ok(rendered) => Err(CaseError::Violation(format!("rendered {:?}", names(&rendered.objects)))),
        Err(failure) => {
            let failure = expect_category(failure, FailureCategory::InvalidValues)?;
            ensure!(!failure.message.contains("canary-value"), "the message quotes the values");
            Ok(())
        }
    }
}

fn without_package(context: &Context) -> RenderRequest {
    RenderRequest {
        target: Some(context.target()),
        release: Some(context.release("web")),
        ..RenderRequest::default()
    }
}
