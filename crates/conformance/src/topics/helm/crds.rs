//! CRDs in the `crds/` folder of charts.

use chandler_tool::generated::tool::{
    ApplyOptions, ApplyRequest, CrdPolicy, FailureCategory, ReleaseState, ReleaseStatus,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};

use crate::{
    Case, CaseError,
    chart::Chart,
    context::Context,
    custom_resources::{allowing, definition, definitions, find_definition, group, thing, things},
    request::{REPLACE_UNSAFE, RequestExt as _},
};

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
    case!(
        "helm/crds/unsafe",
        [HelmRecords, Crds],
        unsafe_folder,
        "A CRD in crds/ that would lose a field is REJECTED before anything is written, unless it is allowed."
    ),
    case!(
        "helm/crds/unsafe-template",
        [HelmRecords, Crds],
        unsafe_template,
        "The same holds for a CRD in the templates, with every policy for crds/."
    ),
    case!(
        "helm/crds/rolled-back",
        [HelmRecords, Crds, Rollback],
        rolled_back,
        "A rollback leaves a CRD in the templates unchanged if the older one has fewer fields."
    ),
    case!(
        "helm/crds/rolled-back-new",
        [HelmRecords, Crds, Rollback],
        rolled_back_new,
        "A rollback keeps a CRD in the templates that the failed upgrade has created."
    ),
    case!(
        "helm/crds/limits",
        [HelmRecords, Crds],
        limits,
        "A CRD with tighter limits of values replaces the other one."
    ),
    case!(
        "helm/crds/removed",
        [HelmRecords, Crds],
        removed,
        "A CRD that is no longer in the templates is not deleted: REJECTED, unless it is kept or deleting it is allowed."
    ),
];

/// The name of the `Thing` of a release.
const RELEASE_NAME: &str = "{{ .Release.Name }}";

/// Returns whether the CRD has a field.
async fn has_field(context: &Context, field: &str) -> Result<bool, CaseError> {
    let text = serde_json::to_string(&find_definition(context).await?).unwrap_or_default();
    Ok(text.contains(&format!("\"{field}\"")))
}

/// Returns the generation of the CRD, if it exists.
async fn generation(context: &Context) -> Result<Option<i64>, CaseError> {
    Ok(find_definition(context).await?.and_then(|definition| definition.metadata.generation))
}

async fn shared(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let one = context.pack_chart(&Chart::config().file("crds/thing.yaml", definition(&group, &["one"])))?;
    let two =
        context.pack_chart(&Chart::config().file("crds/thing.yaml", definition(&group, &["one", "two"])))?;
    context.apply(context.install("one", &one, "")).await?;
    let created = generation(context).await?;
    ensure!(created.is_some(), "the CRD does not exist");
    context.apply(context.install("two", &two, "")).await?;
    context.apply(context.upgrade("two", &two, "size: 1")).await?;
    ensure!(generation(context).await? == created, "the second chart replaced the CRD without request");

    let replace = CrdPolicy::CreateReplace.into();
    let request = context.upgrade("two", &two, "size: 2").with(|options| options.crds = replace);
    context.apply(request).await?;
    ensure!(has_field(context, "two").await?, "the CRD was not replaced");
    context.remove(context.removal("one")).await?;
    context.remove(context.removal("two")).await?;
    ensure!(find_definition(context).await?.is_some(), "the CRD was deleted with a release");
    Ok(())
}

async fn used(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let chart = Chart::config()
        .file("crds/thing.yaml", definition(&group, &["one"]))
        .template("thing.yaml", thing(&group, RELEASE_NAME, "one"));
    let state = context.apply(context.install("web", &context.pack_chart(&chart)?, "")).await?;
    let kinds: Vec<_> = state.inventory.iter().map(|object| &*object.kind).collect();
    ensure!(kinds.contains(&"Thing"), "the inventory has {kinds:?}");
    let things = things(context);
    ensure!(things.get_opt("web").await?.is_some(), "the custom resource does not exist");
    context.remove(context.removal("web")).await?;
    ensure!(things.get_opt("web").await?.is_none(), "the custom resource still exists");
    Ok(())
}

async fn skipped(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().file("crds/thing.yaml", definition(&group(context), &["one"]));
    let request = context.install("web", &context.pack_chart(&chart)?, "");
    context.apply(request.with(|options| options.crds = CrdPolicy::Skip.into())).await?;
    ensure!(find_definition(context).await?.is_none(), "the CRD was created although it was to be skipped");
    Ok(())
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    context.apply(context.install("web", &context.pack_chart(&Chart::config())?, "")).await?;
    let group = group(context);
    let chart = Chart::config()
        .version("2.0.0")
        .file("crds/thing.yaml", definition(&group, &["one"]))
        .template("thing.yaml", thing(&group, RELEASE_NAME, "one"));
    context.apply(context.upgrade("web", &context.pack_chart(&chart)?, "")).await.map(drop)
}

fn replace(options: &mut ApplyOptions) {
    options.crds = CrdPolicy::CreateReplace.into();
}

/// Checks that an upgrade is refused because of the field `two`, and that it has written nothing.
async fn refused(context: &Context, request: ApplyRequest, deployed: &ReleaseState) -> Result<(), CaseError> {
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    for text in [&*format!("things.{}", group(context)), "v1", ".spec.two", REPLACE_UNSAFE] {
        ensure!(failure.message.contains(text), "{text} is not in the message: {}", failure.message);
    }
    ensure!(generation(context).await? == Some(1), "the CRD was replaced");
    context.agree(deployed).await
}

async fn unsafe_folder(context: &Context) -> Result<(), CaseError> {
    let (group, other) = (group(context), format!("other-{}", group(context)));
    let wide = Chart::config().file("crds/thing.yaml", definition(&group, &["one", "two"]));
    let wide = context.pack_chart(&wide)?;
    let state = context.apply(context.install("web", &wide, "size: 1").with(replace)).await?;
    let narrow = |text: String| {
        // In the order of the files, this CRD would be created first.
        let chart = Chart::config().version("2.0.0").file("crds/a.yaml", definition(&other, &["one"]));
        context.pack_chart(&chart.file("crds/thing.yaml", text))
    };
    let narrower = definition(&group, &["one"]);
    let package = narrow(narrower.clone())?;
    let request = context.upgrade("web", &package, "size: 2").with(replace);
    refused(context, request.clone(), &state).await?;
    let created = definitions(context).get_opt(&format!("things.{other}")).await?;
    ensure!(created.is_none(), "another CRD was created");

    context.apply(request.with(|options| options.replace_unsafe_crds = true)).await?;
    ensure!(!has_field(context, "two").await?, "the CRD was not replaced although it was allowed");
    context.apply(context.upgrade("web", &wide, "size: 3").with(replace)).await?;
    ensure!(has_field(context, "two").await?, "a wider CRD did not replace the narrower one");
    let package = narrow(allowing(&narrower))?;
    context.apply(context.upgrade("web", &package, "size: 4").with(replace)).await?;
    ensure!(!has_field(context, "two").await?, "the CRD was not replaced although it allows it");
    Ok(())
}

async fn unsafe_template(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let chart = |text: String| context.pack_chart(&Chart::config().template("thing.yaml", text));
    let wide = chart(definition(&group, &["one", "two"]))?;
    let state = context.apply(context.install("web", &wide, "size: 1")).await?;
    let narrower = definition(&group, &["one"]);
    let package = chart(narrower.clone())?;
    for policy in [CrdPolicy::Unspecified, CrdPolicy::Skip, CrdPolicy::CreateReplace] {
        let request = context.upgrade("web", &package, "size: 2");
        refused(context, request.with(|options| options.crds = policy.into()), &state).await?;
    }
    let request = context.upgrade("web", &package, "size: 2");
    context.apply(request.with(|options| options.replace_unsafe_crds = true)).await?;
    ensure!(!has_field(context, "two").await?, "the CRD was not replaced although it was allowed");
    context.apply(context.upgrade("web", &wide, "size: 3")).await?;
    context.apply(context.upgrade("web", &chart(allowing(&narrower))?, "size: 4")).await?;
    ensure!(!has_field(context, "two").await?, "the CRD was not replaced although it allows it");
    Ok(())
}

/// An object that the API server rejects.
const WRONG: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: -1}]}\n";

async fn rolled_back(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let chart = |fields: &[&str]| Chart::config().template("thing.yaml", definition(&group, fields));
    let old = context.pack_chart(&chart(&["one"]))?;
    let old = context.apply(context.install("web", &old, "size: 1")).await?;
    let bad = context.pack_chart(&chart(&["one", "two"]).template("wrong.yaml", WRONG))?;
    let request = context.upgrade("web", &bad, "size: 2");
    let failed = request.input_digest.clone();
    context.apply_fails(request, FailureCategory::Rejected).await?;
    ensure!(has_field(context, "two").await?, "the failed upgrade did not replace the CRD");

    let state = context.tool.rollback(context.rollback("web", &old.input_digest, &failed)).await?.state()?;
    ensure!(
        state.revision == 3 && state.status() == ReleaseStatus::Deployed,
        "after the rollback: {state:?}"
    );
    context.agree(&state).await?;
    ensure!(has_field(context, "two").await?, "the rollback removed a field of the CRD");
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(data.values().any(|text| text.contains(r#""size":1"#)), "the object has {data:?}");
    Ok(())
}

async fn rolled_back_new(context: &Context) -> Result<(), CaseError> {
    let old = context.pack_chart(&Chart::config())?;
    let old = context.apply(context.install("web", &old, "size: 1")).await?;
    let crd = definition(&group(context), &["one"]);
    let bad = Chart::config().template("thing.yaml", crd).template("wrong.yaml", WRONG);
    let request = context.upgrade("web", &context.pack_chart(&bad)?, "size: 2");
    let failed = request.input_digest.clone();
    context.apply_fails(request, FailureCategory::Rejected).await?;
    ensure!(find_definition(context).await?.is_some(), "the failed upgrade did not create the CRD");
    let state = context.tool.rollback(context.rollback("web", &old.input_digest, &failed)).await?.state()?;
    context.agree(&state).await?;
    ensure!(find_definition(context).await?.is_some(), "the rollback deleted the CRD");
    Ok(())
}

async fn limits(context: &Context) -> Result<(), CaseError> {
    let wide = definition(&group(context), &["one"]);
    let narrow = wide.replace("type: string", "type: string, maxLength: 5, pattern: a");
    for (version, text) in [("1.0.0", wide), ("2.0.0", narrow)] {
        let chart = Chart::config().version(version).template("thing.yaml", text);
        let package = context.pack_chart(&chart)?;
        let request = match version {
            "1.0.0" => context.install("web", &package, ""),
            _ => context.upgrade("web", &package, ""),
        };
        context.apply(request).await.map_err(|error| error.within(version))?;
    }
    ensure!(has_field(context, "maxLength").await?, "the CRD was not replaced");
    Ok(())
}

async fn removed(context: &Context) -> Result<(), CaseError> {
    let with = Chart::config().template("thing.yaml", definition(&group(context), &["one"]));
    let (with, without) = (context.pack_chart(&with)?, context.pack_chart(&Chart::config())?);
    let deployed = context.apply(context.install("web", &with, "size: 1")).await?;
    let request = context.upgrade("web", &without, "size: 2");
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    for text in [&*format!("things.{}", group(context)), "helm.sh/resource-policy: keep", REPLACE_UNSAFE] {
        ensure!(failure.message.contains(text), "{text} is not in the message: {}", failure.message);
    }
    context.agree(&deployed).await?;

    let keep = serde_json::json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    let name = format!("things.{}", group(context));
    definitions(context).patch(&name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    context.apply(context.upgrade("web", &without, "size: 3")).await?;
    ensure!(find_definition(context).await?.is_some(), "a CRD that is to be kept was deleted");

    context.apply(context.upgrade("web", &with, "size: 4")).await?;
    let no_policy = serde_json::json!({"metadata": {"annotations": {"helm.sh/resource-policy": null}}});
    definitions(context).patch(&name, &PatchParams::default(), &Patch::Merge(no_policy)).await?;
    let request = context.upgrade("web", &without, "size: 5");
    context.apply(request.with(|options| options.replace_unsafe_crds = true)).await?;
    let left = find_definition(context).await?;
    ensure!(
        left.is_none_or(|left| left.metadata.deletion_timestamp.is_some()),
        "the CRD was not deleted although it was allowed"
    );
    Ok(())
}
