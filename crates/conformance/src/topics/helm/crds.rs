//! CRDs in the `crds/` folder of charts.

use chandler_tool::generated::tool::CrdPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, core::GroupVersionKind, discovery::ApiResource};

use crate::{Case, CaseError, chart::Chart, context::Context, request::RequestExt as _};

pub const CASES: &[Case] = &[
    case!(
        "helm/crds/shared",
        [HelmRecords, Crds],
        shared,
        "A CRD of two charts is created once and replaced only on request."
    ),
    case!(
        "helm/crds/used",
        [HelmRecords, Crds],
        used,
        "A chart's templates can use the kinds of its crds/ folder."
    ),
    case!("helm/crds/skipped", [HelmRecords, Crds], skipped, "CRDs can be skipped."),
    case!(
        "helm/crds/upgrade",
        [HelmRecords, Crds],
        upgrade,
        "A CRD that a newer chart adds is created by the upgrade."
    ),
];

/// Returns a CRD of `Thing`s in a group, with one field.
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

/// Returns the generation of the CRD, if it exists.
async fn generation(context: &Context) -> Result<Option<i64>, CaseError> {
    Ok(find(context).await?.and_then(|definition| definition.metadata.generation))
}

async fn shared(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let one = context.pack_chart(&Chart::config().file("crds/thing.yaml", definition(&group, "one")))?;
    let two = context.pack_chart(&Chart::config().file("crds/thing.yaml", definition(&group, "two")))?;
    context.apply(context.install("one", &one, "")).await?;
    let created = generation(context).await?;
    ensure!(created.is_some(), "the CRD does not exist");
    context.apply(context.install("two", &two, "")).await?;
    context.apply(context.upgrade("two", &two, "size: 1")).await?;
    ensure!(generation(context).await? == created, "the second chart replaced the CRD without request");

    let replace = CrdPolicy::CreateReplace.into();
    let request = context.upgrade("two", &two, "size: 2").with(|options| options.crds = replace);
    context.apply(request).await?;
    let text = serde_json::to_string(&find(context).await?).unwrap_or_default();
    ensure!(text.contains(r#""two""#) && !text.contains(r#""one""#), "the CRD was not replaced: {text}");
    context.remove(context.removal("one")).await?;
    context.remove(context.removal("two")).await?;
    ensure!(find(context).await?.is_some(), "the CRD was deleted with a release");
    Ok(())
}

async fn used(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let chart = Chart::config()
        .file("crds/thing.yaml", definition(&group, "one"))
        .template("thing.yaml", thing(&group, "one"));
    let state = context.apply(context.install("web", &context.pack_chart(&chart)?, "")).await?;
    let kinds: Vec<_> = state.inventory.iter().map(|object| &*object.kind).collect();
    ensure!(kinds.contains(&"Thing"), "the inventory has {kinds:?}");
    let things = context.dynamic(&ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Thing")));
    ensure!(things.get_opt("web").await?.is_some(), "the custom resource does not exist");
    context.remove(context.removal("web")).await?;
    ensure!(things.get_opt("web").await?.is_none(), "the custom resource still exists");
    Ok(())
}

async fn skipped(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().file("crds/thing.yaml", definition(&group(context), "one"));
    let request = context.install("web", &context.pack_chart(&chart)?, "");
    context.apply(request.with(|options| options.crds = CrdPolicy::Skip.into())).await?;
    ensure!(find(context).await?.is_none(), "the CRD was created although it was to be skipped");
    Ok(())
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    context.apply(context.install("web", &context.pack_chart(&Chart::config())?, "")).await?;
    let group = group(context);
    let chart = Chart::config()
        .version("2.0.0")
        .file("crds/thing.yaml", definition(&group, "one"))
        .template("thing.yaml", thing(&group, "one"));
    context.apply(context.upgrade("web", &context.pack_chart(&chart)?, "")).await.map(drop)
}
