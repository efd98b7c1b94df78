//! Bundles of plain manifests, format `manifests/v1`.

use chandler_core::digest::Digest;
use chandler_tool::generated::tool::FailureCategory;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{ResourceExt as _, api::PostParams};
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    custom_resources::{self, allowing, definition, find_definition, group, thing, things},
    request::RequestExt as _,
};

pub const CASES: &[Case] = &[
    case!(
        "bundles/lifecycle",
        [Manifests],
        lifecycle,
        "The objects of a bundle are applied as they are, pruned by an upgrade, and removed with the release."
    ),
    case!(
        "bundles/values",
        [Manifests],
        values,
        "The files of a bundle are templates only if values are given."
    ),
    case!(
        "bundles/definitions",
        [Manifests],
        definitions,
        "A CRD and an object of its kind are applied at once, later versions replace the CRD, and nothing deletes it."
    ),
    case!(
        "bundles/unsafe-definition",
        [Manifests],
        unsafe_definition,
        "A CRD that would lose a field is REJECTED, and nothing of the bundle is applied, unless it is allowed."
    ),
    case!(
        "bundles/foreign-definition",
        [Manifests, TakeOwnership],
        foreign_definition,
        "A CRD that does not belong to the release is a CONFLICT unless the release may take it over."
    ),
    case!(
        "bundles/foreign-object",
        [Manifests, TakeOwnership],
        foreign_object,
        "An object that does not belong to the release is a CONFLICT unless the release may take it over."
    ),
    case!(
        "bundles/fields",
        [Manifests, TakeOwnership],
        fields,
        "The fields of an object that a release takes over belong to it: an upgrade changes and removes them."
    ),
    case!(
        "bundles/immutable",
        [Manifests],
        immutable,
        "An object whose immutable field changes is replaced if it has the annotation, and REJECTED otherwise."
    ),
    case!(
        "bundles/size",
        [Manifests],
        size,
        "A bundle whose record would be too large is INVALID_PACKAGE, and nothing of it is applied."
    ),
    case!(
        "bundles/invalid",
        [Manifests],
        invalid,
        "An invalid bundle is INVALID_PACKAGE, and the message names the file and the line."
    ),
    case!("bundles/unchanged", [Manifests], unchanged, "Applying a bundle that is deployed changes nothing."),
];

const TEMPLATE: &str = "{{ .Values.size }}";

fn config(name: &str, text: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  text: '{text}'\n")
}

/// Returns the text of a ConfigMap.
async fn text_of(context: &Context, name: &str) -> Result<String, CaseError> {
    let data = context.get::<ConfigMap>(name).await?.data.unwrap_or_default();
    Ok(data.get("text").cloned().unwrap_or_default())
}

async fn lifecycle(context: &Context) -> Result<(), CaseError> {
    let two = config("one", TEMPLATE) + "---\n" + &config("two", "2");
    let package = context.pack_bundle(&[("a/two.yaml", two), ("three.yml", config("three", "3"))])?;
    let state = context.apply(context.install("web", &package, json!({}))).await?;
    ensure!(state.inventory.len() == 3, "the inventory is {:?}", state.inventory);
    let text = text_of(context, "one").await?;
    ensure!(text == TEMPLATE, "without values the text became {text:?}");

    let package = context.pack_bundle(&[("one.yaml", config("one", "1"))])?;
    let state = context.apply(context.upgrade("web", &package, json!({}))).await?;
    ensure!(state.revision == 2, "the upgrade created revision {}", state.revision);
    ensure!(text_of(context, "one").await? == "1", "the upgrade did not change the object");
    for name in ["two", "three"] {
        ensure!(context.find::<ConfigMap>(name).await?.is_none(), "{name} was not pruned");
    }
    context.remove(context.removal("web")).await?;
    ensure!(context.find::<ConfigMap>("one").await?.is_none(), "the object still exists");
    Ok(())
}

async fn values(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_bundle(&[("one.yaml", config("one", TEMPLATE))])?;
    context.apply(context.install("web", &package, json!({"size": "three"}))).await?;
    let text = text_of(context, "one").await?;
    ensure!(text == "three", "with values the text is {text:?}");
    context.apply(context.upgrade("web", &package, json!({}))).await?;
    let text = text_of(context, "one").await?;
    ensure!(text == TEMPLATE, "without values the text is {text:?}");
    Ok(())
}

async fn definitions(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    // The object comes first in the order of the files.
    let bundle = |field: &str, fields: &[&str]| {
        context
            .pack_bundle(&[("a.yaml", thing(&group, "thing", field)), ("b.yaml", definition(&group, fields))])
    };
    let (one, two) = (bundle("one", &["one"])?, bundle("two", &["one", "two"])?);
    context.apply(context.install("web", &one, json!({}))).await?;
    ensure!(things(context).get_opt("thing").await?.is_some(), "the custom resource does not exist");
    context.apply(context.upgrade("web", &two, json!({}))).await?;
    let thing = things(context).get("thing").await?;
    ensure!(thing.data["spec"]["two"] == "x", "the custom resource is {:?}", thing.data);

    let config = context.pack_bundle(&[("one.yaml", config("one", "1"))])?;
    context.apply(context.upgrade("web", &config, json!({}))).await?;
    ensure!(find_definition(context).await?.is_some(), "the upgrade pruned the CRD");
    ensure!(things(context).get_opt("thing").await?.is_none(), "the custom resource was not pruned");
    context.apply(context.upgrade("web", &two, json!({}))).await?;
    context.remove(context.removal("web")).await?;
    ensure!(find_definition(context).await?.is_some(), "the removal deleted the CRD");
    ensure!(things(context).get_opt("thing").await?.is_none(), "the custom resource still exists");
    Ok(())
}

async fn unsafe_definition(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let package = context.pack_bundle(&[("a.yaml", definition(&group, &["one", "two"]))])?;
    let state = context.apply(context.install("web", &package, json!({}))).await?;
    let narrower = definition(&group, &["one"]);
    let bundle = [("a.yaml", narrower.clone()), ("b.yaml", config("one", "1"))];
    let request = context.upgrade("web", &context.pack_bundle(&bundle)?, json!({}));
    let failure = context.apply_fails(request.clone(), FailureCategory::Rejected).await?;
    for text in [&*format!("things.{group}"), "v1", ".spec.two"] {
        ensure!(failure.message.contains(text), "{text} is not in the message: {}", failure.message);
    }
    let generation = find_definition(context).await?.and_then(|found| found.metadata.generation);
    ensure!(generation == Some(1), "the CRD was changed");
    ensure!(context.find::<ConfigMap>("one").await?.is_none(), "another object was applied");
    context.agree(&state).await?;
    context.apply(request.with(|options| options.replace_unsafe_crds = true)).await?;

    // The CRD itself may allow it, too.
    context.apply(context.upgrade("web", &package, json!({}))).await?;
    let package = context.pack_bundle(&[("a.yaml", allowing(&narrower))])?;
    context.apply(context.upgrade("web", &package, json!({}))).await.map(drop)
}

async fn foreign_definition(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let foreign: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object"}}}],
        },
    }))
    .map_err(|error| CaseError::Host(error.into()))?;
    custom_resources::definitions(context).create(&PostParams::default(), &foreign).await?;
    let package =
        context.pack_bundle(&[("a.yaml", definition(&group, &["one"])), ("b.yaml", config("one", "1"))])?;
    let request = context.install("web", &package, json!({}));
    let failure = context.apply_fails(request, FailureCategory::Conflict).await?;
    ensure!(failure.message.contains("things."), "the message does not name the CRD: {}", failure.message);
    let generation = find_definition(context).await?.and_then(|found| found.metadata.generation);
    ensure!(generation == Some(1), "the CRD was changed");
    ensure!(context.find::<ConfigMap>("one").await?.is_none(), "another object was applied");
    context.agree_absent("web").await?;

    let request = context.install("web", &package, json!({})).with(|options| options.take_ownership = true);
    context.apply(request).await.map(drop)
}

async fn foreign_object(context: &Context) -> Result<(), CaseError> {
    let before = context.create_config("one").await?;
    let package = context.pack_bundle(&[("one.yaml", config("one", "1"))])?;
    let request = context.install("web", &package, json!({}));
    let failure = context.apply_fails(request, FailureCategory::Conflict).await?;
    ensure!(failure.message.contains("one"), "the message does not name the object: {}", failure.message);
    let after = context.get::<ConfigMap>("one").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed");
    let request = context.install("web", &package, json!({})).with(|options| options.take_ownership = true);
    context.apply(request).await?;
    ensure!(text_of(context, "one").await? == "1", "the object was not taken over");
    Ok(())
}

async fn fields(context: &Context) -> Result<(), CaseError> {
    let mut created = ConfigMap::default();
    created.metadata.name = Some("one".to_owned());
    created.data =
        Some([("text", "1"), ("old", "x")].map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let created: ConfigMap = context.api().create(&PostParams::default(), &created).await?;
    let package = context.pack_bundle(&[("one.yaml", config("one", "1") + "  old: x\n")])?;
    let request = context.install("web", &package, json!({})).with(|options| options.take_ownership = true);
    context.apply(request).await?;

    let package = context.pack_bundle(&[("one.yaml", config("one", "2"))])?;
    let request = context.upgrade("web", &package, json!({})).with(|options| options.take_ownership = true);
    context.apply(request).await?;
    let upgraded = context.get::<ConfigMap>("one").await?;
    ensure!(upgraded.uid() == created.uid(), "the object was replaced");
    let data = upgraded.data.unwrap_or_default();
    ensure!(data.get("text").is_some_and(|text| text == "2"), "the upgrade left {data:?}");
    ensure!(!data.contains_key("old"), "a field that is no longer in the bundle was not removed");
    Ok(())
}

/// Returns a ConfigMap whose data cannot change.
fn fixed(name: &str, annotations: &str, text: &str) -> String {
    let annotated = format!("  name: {name}\n  annotations: {annotations}\n");
    config(name, text).replace(&format!("  name: {name}\n"), &annotated) + "immutable: true\n"
}

async fn immutable(context: &Context) -> Result<(), CaseError> {
    let bundle = |annotations: &str, text: &str| {
        context.pack_bundle(&[("a.yaml", fixed("fixed", annotations, text)), ("b.yaml", config("one", text))])
    };
    context.apply(context.install("web", &bundle("{}", "1")?, json!({}))).await?;
    let before = context.get::<ConfigMap>("fixed").await?;
    let request = context.upgrade("web", &bundle("{}", "2")?, json!({}));
    context.apply_fails(request, FailureCategory::Rejected).await?;
    let after = context.get::<ConfigMap>("fixed").await?;
    ensure!(before.uid() == after.uid(), "an object without the annotation was replaced");

    let annotations = "{chandler.dev/replace: WhenImmutable}";
    context.apply(context.upgrade("web", &bundle(annotations, "2")?, json!({}))).await?;
    let replaced = context.get::<ConfigMap>("fixed").await?;
    ensure!(replaced.uid() != before.uid(), "the object was not replaced");
    ensure!(text_of(context, "fixed").await? == "2", "the object was replaced by {:?}", replaced.data);

    // A change of other fields replaces nothing.
    let annotations = "{chandler.dev/replace: WhenImmutable, example.invalid/other: x}";
    context.apply(context.upgrade("web", &bundle(annotations, "2")?, json!({}))).await?;
    let changed = context.get::<ConfigMap>("fixed").await?;
    ensure!(changed.uid() == replaced.uid(), "the object was replaced although no immutable field changed");
    Ok(())
}

/// Returns text of at least this size that cannot be compressed to less than half of it.
fn noise(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(Digest::of(format!("{seed} {number}")).hex());
    }
    text
}

async fn size(context: &Context) -> Result<(), CaseError> {
    const BYTES: usize = 900 << 10;
    let group = group(context);
    let names = ["one", "two", "three", "four"];
    let large = names.iter().enumerate().map(|(seed, name)| config(name, &noise(seed, BYTES)));
    let mut files: Vec<_> = ["b.yaml", "c.yaml", "d.yaml", "e.yaml"].into_iter().zip(large).collect();
    files.push(("a.yaml", definition(&group, &["one"])));
    let request = context.install("web", &context.pack_bundle(&files)?, json!({}));
    let failure = context.apply_fails(request, FailureCategory::InvalidPackage).await?;
    ensure!(failure.message.contains("KiB"), "the message does not name the size: {}", failure.message);
    ensure!(find_definition(context).await?.is_none(), "the CRD was applied");
    for name in names {
        ensure!(context.find::<ConfigMap>(name).await?.is_none(), "{name} was applied");
    }
    context.agree_absent("web").await
}

async fn invalid(context: &Context) -> Result<(), CaseError> {
    let rows = [
        ("an object without a kind", config("one", "1") + "---\nmetadata: {name: two}\n", "line 8"),
        ("an object twice", config("one", "1") + "---\n" + &config("one", "2"), "line 8"),
        ("no object", "# nothing\n".to_owned(), "no objects"),
    ];
    for (what, content, expected) in rows {
        let package = context.pack_bundle(&[("folder/a.yaml", content)])?;
        let request = context.install("web", &package, json!({}));
        let failure = context
            .apply_fails(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| error.within(what))?;
        ensure!(failure.message.contains(expected), "{what}: {}", failure.message);
    }
    ensure!(context.find::<ConfigMap>("one").await?.is_none(), "an object of an invalid bundle was applied");
    context.agree_absent("web").await
}

async fn unchanged(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let package = context.pack_bundle(&[
        ("a.yaml", definition(&group, &["one"])),
        ("b.yaml", thing(&group, "thing", "one")),
    ])?;
    let deployed = context.apply(context.install("web", &package, json!({}))).await?;
    let version = |found: Option<CustomResourceDefinition>| found.and_then(|found| found.resource_version());
    let before = version(find_definition(context).await?);
    context.apply_unchanged(context.upgrade("web", &package, json!({})), &deployed).await?;
    ensure!(version(find_definition(context).await?) == before, "the CRD was written");
    Ok(())
}
