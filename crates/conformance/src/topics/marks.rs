//! The input digest: which inputs made which revision.

use chandler_core::digest::InputMark;
use chandler_tool::generated::tool::{Package, StepKind};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, api::ListParams};

use crate::{
    Ability, Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
};

pub const CASES: &[Case] = &[
    case!(
        "marks/same-write",
        Some(Ability::Hooks),
        same_write,
        "The input is recorded by the write that makes the revision."
    ),
    case!("marks/survive", None, survive, "Another process reads the input that one has recorded."),
    case!("marks/rolled-back", None, rolled_back, "A revision that `helm rollback` made claims no input."),
    case!(
        "marks/upgraded",
        None,
        upgraded,
        "A revision that `helm upgrade` made claims no input, the next one of ours does."
    ),
    case!("marks/adopted", None, adopted, "A release that `helm install` made is upgraded like any other."),
];

/// What the newest revision's record says of its inputs.
async fn stored(context: &Context, name: &str) -> Result<Option<InputMark>, CaseError> {
    let parameters = ListParams::default().labels(&format!("owner=helm,name={name}"));
    let secrets = context.api::<Secret>().list(&parameters).await?;
    let version =
        |secret: &Secret| secret.labels().get("version").and_then(|version| version.parse::<u32>().ok());
    let newest = secrets.items.iter().max_by_key(|secret| version(secret));
    let label = newest.and_then(|secret| secret.labels().get(InputMark::LABEL).cloned());
    Ok(label.and_then(|label| InputMark::parse(&label)))
}

async fn marked(context: &Context, name: &str, digest: &str, revision: u32) -> Result<(), CaseError> {
    let mark = stored(context, name).await?;
    let right = mark.as_ref().is_some_and(|mark| mark.digest.as_str() == digest && mark.revision == revision);
    ensure!(right, "revision {revision} was made from {digest}, its record says {mark:?}");
    Ok(())
}

async fn same_write(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let held = Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never));
    let request = context.install("web", &context.pack(&held)?, "");
    let (id, inputs) = (request.operation_id.clone(), request.input_digest.clone());
    let mut running = tool.begin_apply(request).await?;
    running.until(StepKind::Waiting).await?;
    marked(context, "web", &inputs, 1).await?;
    let state = context.observed("web").await?;
    ensure!(state.input_digest == inputs, "Observe says {:?} of a pending revision", state.input_digest);
    tool.cancel(&id).await.map(drop)
}

async fn installed(context: &Context) -> Result<(Package, String), CaseError> {
    let package = context.pack(&Chart::config())?;
    let request = context.install("web", &package, "size: 1");
    let inputs = request.input_digest.clone();
    context.applied(request).await?;
    marked(context, "web", &inputs, 1).await?;
    Ok((package, inputs))
}

async fn survive(context: &Context) -> Result<(), CaseError> {
    let (package, inputs) = installed(context).await?;
    let seen = context.own_tool().observe(context.target(), context.release("web"), 0).await?;
    let seen = seen.ok().flatten().unwrap_or_default();
    ensure!(
        seen.input_digest == inputs,
        "another process reads {:?}, recorded was {inputs}",
        seen.input_digest
    );
    let request = context.upgrade("web", &package, "size: 2");
    let inputs = request.input_digest.clone();
    context.applied(request).await?;
    marked(context, "web", &inputs, 2).await
}

async fn unclaimed(context: &Context, revision: u32) -> Result<(), CaseError> {
    let state = context.observed("web").await?;
    ensure!(state.revision == revision, "the newest revision is {}", state.revision);
    ensure!(
        state.input_digest.is_empty(),
        "revision {revision} is not ours, Observe says {:?}",
        state.input_digest
    );
    context.agree(&state).await
}

async fn rolled_back(context: &Context) -> Result<(), CaseError> {
    let (package, _) = installed(context).await?;
    context.applied(context.upgrade("web", &package, "size: 2")).await?;
    context.helm().run(&["rollback", "web", "1"]).await?;
    unclaimed(context, 3).await
}

async fn upgraded(context: &Context) -> Result<(), CaseError> {
    let (package, _) = installed(context).await?;
    context.helm().run(&["upgrade", "web", &package.path, "--set", "size=3"]).await?;
    unclaimed(context, 2).await?;
    let request = context.upgrade("web", &package, "size: 4");
    let inputs = request.input_digest.clone();
    context.applied(request).await?;
    marked(context, "web", &inputs, 3).await
}

async fn adopted(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    context.helm().install("web", package.path.as_ref(), &["--set", "size=1"]).await?;
    unclaimed(context, 1).await?;
    let state = context.applied(context.upgrade("web", &package, "size: 2")).await?;
    ensure!(state.revision == 2, "the upgrade made revision {}", state.revision);
    Ok(())
}
