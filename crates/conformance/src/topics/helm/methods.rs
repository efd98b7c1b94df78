//! Server-side and client-side apply by Helm.

use chandler_tool::generated::tool::{ApplyMethod, ApplyOptions, FailureCategory};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    request::{RequestExt as _, with_other_digest},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/methods/default",
        [HelmRecords, ServerSideApply],
        default,
        "A new release is applied server-side."
    ),
    case!(
        "helm/methods/follow",
        [HelmRecords],
        follow,
        "An upgrade keeps the method of the release, also of one that the helm CLI installed."
    ),
    case!(
        "helm/methods/chosen",
        [HelmRecords],
        chosen,
        "The method can be requested, and the next upgrade keeps it."
    ),
    case!(
        "helm/methods/force",
        [HelmRecords],
        force,
        "force_conflicts needs server-side apply, force_replace client-side apply."
    ),
    case!(
        "helm/methods/again",
        [HelmRecords, Wait],
        again,
        "Applying other inputs that render the same objects changes no object, with both methods."
    ),
    case!(
        "helm/methods/unknown-field",
        [HelmRecords],
        unknown_field,
        "An unknown field is REJECTED with both methods."
    ),
];

const METHODS: [(ApplyMethod, &str); 2] =
    [(ApplyMethod::ServerSide, "Apply"), (ApplyMethod::ClientSide, "Update")];

/// Returns the operation in the managed fields of the ConfigMap's data.
async fn operation(context: &Context, name: &str) -> Result<Option<String>, CaseError> {
    let config = context.get::<ConfigMap>(name).await?;
    let writer = config
        .managed_fields()
        .iter()
        .find(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some()));
    Ok(writer.and_then(|entry| entry.operation.clone()))
}

async fn written(
    context: &Context,
    name: &str,
    method: ApplyMethod,
    reported: ApplyMethod,
) -> Result<(), CaseError> {
    ensure!(
        reported == method,
        "{name}: reported is {}, expected {}",
        reported.as_str_name(),
        method.as_str_name()
    );
    let expected =
        METHODS.iter().find(|(known, _)| *known == method).map(|(_, operation)| (*operation).to_owned());
    let got = operation(context, name).await?;
    ensure!(got == expected, "{name}: the data was written with {got:?}, expected {expected:?}");
    Ok(())
}

async fn default(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    let state = context.apply(context.install("web", &package, "size: 1")).await?;
    written(context, "web", ApplyMethod::ServerSide, state.method()).await?;
    let state = context.apply(context.upgrade("web", &package, "size: 2")).await?;
    written(context, "web", ApplyMethod::ServerSide, state.method()).await
}

async fn follow(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    for (name, flag, method) in [
        ("client", "--server-side=false", ApplyMethod::ClientSide),
        ("server", "--server-side=true", ApplyMethod::ServerSide),
    ] {
        context.helm().install(name, package.path.as_ref(), &[flag]).await?;
        let state = context.apply(context.upgrade(name, &package, "size: 2")).await?;
        written(context, name, method, state.method()).await?;
        let removed = context.tool.remove(context.removal(name)).await?;
        removed.absent()?;
    }
    Ok(())
}

async fn chosen(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    for (name, (method, _)) in ["server", "client"].into_iter().zip(METHODS) {
        let request =
            context.install(name, &package, "size: 1").with(|options| options.method = method.into());
        let state = context.apply(request).await?;
        written(context, name, method, state.method()).await?;
        let state = context.apply(context.upgrade(name, &package, "size: 2")).await?;
        written(context, name, method, state.method()).await?;
    }
    Ok(())
}

type Change = fn(&mut ApplyOptions);

async fn force(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&Chart::config())?;
    let wrong: [(&str, Change); 2] = [
        ("force_conflicts, client-side", |options| {
            options.method = ApplyMethod::ClientSide.into();
            options.force_conflicts = true;
        }),
        ("force_replace, server-side", |options| {
            options.method = ApplyMethod::ServerSide.into();
            options.force_replace = true;
        }),
    ];
    for (what, change) in wrong {
        let request = context.install("web", &package, "").with(change);
        context
            .apply_fails(request, FailureCategory::InvalidValues)
            .await
            .map_err(|error| error.within(what))?;
    }
    context.agree_absent("web").await?;

    let client_side = |options: &mut ApplyOptions| options.method = ApplyMethod::ClientSide.into();
    context.apply(context.install("web", &package, "size: 1").with(client_side)).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"added": "by hand"}})).await?;
    let request = context.upgrade("web", &package, "size: 2").with(|options| options.force_replace = true);
    context.apply(request).await?;
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(!data.contains_key("added"), "after the replacement the object still has {data:?}");
    Ok(())
}

async fn again(context: &Context) -> Result<(), CaseError> {
    for (name, (method, _)) in ["server", "client"].into_iter().zip(METHODS) {
        let package = context.pack_chart(&Chart::deployment().template("config.yaml", CONFIG))?;
        let values = "replicas: 2\nlist: [a, b]\n";
        let with_method = |options: &mut ApplyOptions| options.method = method.into();
        let first =
            context.install(name, &package, values).with(with_method).with(|options| options.wait = true);
        context.apply(first).await?;
        let before = versions(context, name).await?;
        let request = with_other_digest(context.upgrade(name, &package, values)).with(with_method);
        let state = context.apply(request).await?;
        let after = versions(context, name).await?;
        ensure!(state.revision == 2, "other inputs created revision {}", state.revision);
        ensure!(
            before == after,
            "{name}-side: (generation, resource version) were {before:?}, now {after:?}"
        );
    }
    Ok(())
}

/// Returns what changes when an object changes.
async fn versions(context: &Context, name: &str) -> Result<(Option<i64>, Option<String>), CaseError> {
    let generation = context.get::<Deployment>(name).await?.metadata.generation;
    Ok((generation, context.get::<ConfigMap>(name).await?.metadata.resource_version))
}

async fn unknown_field(context: &Context) -> Result<(), CaseError> {
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: 80}], selektor: {a: b}}\n";
    let (good, bad) = (
        context.pack_chart(&Chart::config())?,
        context.pack_chart(&Chart::config().template("w.yaml", wrong))?,
    );
    for (name, (method, _)) in ["server", "client"].into_iter().zip(METHODS) {
        let with_method = |options: &mut ApplyOptions| options.method = method.into();
        let request = context.install(name, &bad, "").with(with_method);
        let failure = context
            .apply_fails(request, FailureCategory::Rejected)
            .await
            .map_err(|error| error.within(name))?;
        ensure!(
            failure.message.contains("selektor"),
            "the message does not name the field: {}",
            failure.message
        );
        context.remove(context.removal(name)).await?;
        context.apply(context.install(name, &good, "").with(with_method)).await?;
        let request = context.upgrade(name, &bad, "").with(with_method);
        context.apply_fails(request, FailureCategory::Rejected).await.map_err(|error| error.within(name))?;
        context.remove(context.removal(name)).await?;
    }
    Ok(())
}
