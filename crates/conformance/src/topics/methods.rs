//! Server-side and client-side apply.

use chandler_tool::generated::tool::{ApplyMethod, ApplyOptions, FailureCategory};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde_json::json;

use super::packages::about;
use crate::{Ability, Case, CaseError, chart::Chart, context::Context, order::Order as _};

pub const CASES: &[Case] = &[
    case!(
        "methods/default",
        Some(Ability::ServerSideApply),
        default,
        "A new release is applied server-side."
    ),
    case!("methods/follow", None, follow, "An upgrade follows what the release was made with, by whomever."),
    case!("methods/chosen", None, chosen, "The method can be chosen, and is kept by the next upgrade."),
    case!(
        "methods/force",
        None,
        force,
        "Forcing conflicts needs server-side, forcing replacement client-side apply."
    ),
    case!(
        "methods/unknown-field",
        None,
        unknown_field,
        "Without client-side validation a wrong field is still REJECTED, with either method."
    ),
];

const METHODS: [(ApplyMethod, &str); 2] =
    [(ApplyMethod::ServerSide, "Apply"), (ApplyMethod::ClientSide, "Update")];

/// The operation by which the API server says that the ConfigMap's data was written.
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
    ensure!(got == expected, "{name}: its data was written by {got:?}, expected {expected:?}");
    Ok(())
}

async fn default(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let state = context.applied(context.install("web", &package, "size: 1")).await?;
    written(context, "web", ApplyMethod::ServerSide, state.method()).await?;
    let state = context.applied(context.upgrade("web", &package, "size: 2")).await?;
    written(context, "web", ApplyMethod::ServerSide, state.method()).await
}

async fn follow(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    for (name, flag, method) in [
        ("client", "--server-side=false", ApplyMethod::ClientSide),
        ("server", "--server-side=true", ApplyMethod::ServerSide),
    ] {
        context.helm().install(name, package.path.as_ref(), &[flag]).await?;
        let state = context.applied(context.upgrade(name, &package, "size: 2")).await?;
        written(context, name, method, state.method()).await?;
        let removed = context.tool.remove(context.removal(name)).await?;
        removed.absent()?;
    }
    Ok(())
}

async fn chosen(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    for (name, (method, _)) in ["server", "client"].into_iter().zip(METHODS) {
        let request =
            context.install(name, &package, "size: 1").with(|options| options.method = method.into());
        let state = context.applied(request).await?;
        written(context, name, method, state.method()).await?;
        let state = context.applied(context.upgrade(name, &package, "size: 2")).await?;
        written(context, name, method, state.method()).await?;
    }
    Ok(())
}

type Change = fn(&mut ApplyOptions);

async fn force(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let wrong: [(&str, Change); 2] = [
        ("forced conflicts, client-side", |options| {
            options.method = ApplyMethod::ClientSide.into();
            options.force_conflicts = true;
        }),
        ("forced replacement, server-side", |options| {
            options.method = ApplyMethod::ServerSide.into();
            options.force_replace = true;
        }),
    ];
    for (what, change) in wrong {
        let request = context.install("web", &package, "").with(change);
        context
            .refused(request, FailureCategory::InvalidValues)
            .await
            .map_err(|error| about(what, &error))?;
    }
    context.agree_absent("web").await?;

    let client_side = |options: &mut ApplyOptions| options.method = ApplyMethod::ClientSide.into();
    context.applied(context.install("web", &package, "size: 1").with(client_side)).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"added": "by hand"}})).await?;
    let request = context.upgrade("web", &package, "size: 2").with(|options| options.force_replace = true);
    context.applied(request).await?;
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(!data.contains_key("added"), "replaced, the object still has {data:?}");
    Ok(())
}

async fn unknown_field(context: &Context) -> Result<(), CaseError> {
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: 80}], selektor: {a: b}}\n";
    let (good, bad) =
        (context.pack(&Chart::config())?, context.pack(&Chart::config().template("w.yaml", wrong))?);
    for (name, (method, _)) in ["server", "client"].into_iter().zip(METHODS) {
        let with_method = |options: &mut ApplyOptions| options.method = method.into();
        let request = context.install(name, &bad, "").with(with_method);
        let failure =
            context.refused(request, FailureCategory::Rejected).await.map_err(|e| about(name, &e))?;
        ensure!(
            failure.message.contains("selektor"),
            "the message does not name the field: {}",
            failure.message
        );
        context.removed(context.removal(name)).await?;
        context.applied(context.install(name, &good, "").with(with_method)).await?;
        let request = context.upgrade(name, &bad, "").with(with_method);
        context.refused(request, FailureCategory::Rejected).await.map_err(|e| about(name, &e))?;
        context.removed(context.removal(name)).await?;
    }
    Ok(())
}
