//! Custom resource definitions that charts bring in `crds/`.

use chandler_tool::generated::tool::{CrdPolicy, FailureCategory};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams, core::GroupVersionKind, discovery::ApiResource};

use crate::{Ability, Case, CaseError, chart::Chart, context::Context, order::Order as _};

pub const CASES: &[Case] = &[
    case!(
        "crds/shared",
        Some(Ability::Crds),
        shared,
        "A definition that two charts bring is created once and overwritten only when asked."
    ),
    case!("crds/used", Some(Ability::Crds), used, "A chart's own templates may use what its crds/ defines."),
    case!("crds/skipped", Some(Ability::Crds), skipped, "Definitions can be left out."),
    case!(
        "crds/upgrade",
        Some(Ability::Crds),
        upgrade,
        "A definition that a newer chart adds is created by the upgrade."
    ),
    case!("crds/learned", None, learned, "An API that the cluster got after the tool had looked is found."),
];

/// A definition of `Thing`s in a group, with one field of its own name.
pub fn definition(group: &str, field: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: things, singular: thing, kind: Thing}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        properties:\n          spec: {{type: object, properties: {{{field}: {{type: string}}}}}}\n"
    )
}

fn thing(group: &str, field: &str) -> String {
    format!(
        "apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: {{{{ .Release.Name }}}}}}\nspec: {{{field}: x}}\n"
    )
}

fn group(context: &Context) -> String {
    format!("{}.example.invalid", context.namespace)
}

async fn find(context: &Context) -> Result<Option<CustomResourceDefinition>, CaseError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.environment.client.clone());
    Ok(definitions.get_opt(&format!("things.{}", group(context))).await?)
}

/// What tells one version of the definition from another.
async fn generation(context: &Context) -> Result<Option<i64>, CaseError> {
    Ok(find(context).await?.and_then(|definition| definition.metadata.generation))
}

async fn shared(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let one = context.pack(&Chart::config().file("crds/thing.yaml", definition(&group, "one")))?;
    let two = context.pack(&Chart::config().file("crds/thing.yaml", definition(&group, "two")))?;
    context.applied(context.install("one", &one, "")).await?;
    let made = generation(context).await?;
    ensure!(made.is_some(), "the definition is not there");
    context.applied(context.install("two", &two, "")).await?;
    context.applied(context.upgrade("two", &two, "size: 1")).await?;
    ensure!(generation(context).await? == made, "the second chart overwrote the definition unasked");

    let replace = CrdPolicy::CreateReplace.into();
    let request = context.upgrade("two", &two, "size: 2").with(|options| options.crds = replace);
    context.applied(request).await?;
    let text = serde_json::to_string(&find(context).await?).unwrap_or_default();
    ensure!(text.contains(r#""two""#) && !text.contains(r#""one""#), "asked to, it was not replaced: {text}");
    context.removed(context.removal("one")).await?;
    context.removed(context.removal("two")).await?;
    ensure!(find(context).await?.is_some(), "the definition went with a release");
    Ok(())
}

async fn used(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let chart = Chart::config()
        .file("crds/thing.yaml", definition(&group, "one"))
        .template("thing.yaml", thing(&group, "one"));
    let state = context.applied(context.install("web", &context.pack(&chart)?, "")).await?;
    let kinds: Vec<_> = state.inventory.iter().map(|object| &*object.kind).collect();
    ensure!(kinds.contains(&"Thing"), "the inventory has {kinds:?}");
    let things = context.dynamic(&ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Thing")));
    ensure!(things.get_opt("web").await?.is_some(), "the custom resource is not there");
    context.removed(context.removal("web")).await?;
    ensure!(things.get_opt("web").await?.is_none(), "the custom resource is still there");
    Ok(())
}

async fn skipped(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().file("crds/thing.yaml", definition(&group(context), "one"));
    let request = context.install("web", &context.pack(&chart)?, "");
    context.applied(request.with(|options| options.crds = CrdPolicy::Skip.into())).await?;
    ensure!(find(context).await?.is_none(), "the definition was created although it was to be left out");
    Ok(())
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    context.applied(context.install("web", &context.pack(&Chart::config())?, "")).await?;
    let group = group(context);
    let chart = Chart::config()
        .version("2.0.0")
        .file("crds/thing.yaml", definition(&group, "one"))
        .template("thing.yaml", thing(&group, "one"));
    context.applied(context.upgrade("web", &context.pack(&chart)?, "")).await.map(drop)
}

async fn learned(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let package = context.pack(&Chart::config().template("thing.yaml", thing(&group, "one")))?;
    let failure = context.refused(context.install("web", &package, ""), FailureCategory::Rejected).await?;
    ensure!(failure.message.contains("Thing"), "the message does not name the kind: {}", failure.message);
    let made: CustomResourceDefinition = serde_json::from_value(serde_json::json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .map_err(|error| CaseError::Host(error.into()))?;
    let definitions: Api<CustomResourceDefinition> = Api::all(context.environment.client.clone());
    definitions.create(&PostParams::default(), &made).await?;
    crate::objects::eventually("the definition's being established", || async {
        let conditions =
            find(context).await?.and_then(|found| found.status).and_then(|status| status.conditions);
        Ok(conditions
            .unwrap_or_default()
            .iter()
            .any(|one| one.type_ == "Established" && one.status == "True"))
    })
    .await?;
    let request = match context.observe("web").await? {
        Some(_) => context.upgrade("web", &package, ""),
        None => context.install("web", &package, ""),
    };
    context.applied(request).await.map(drop)
}
