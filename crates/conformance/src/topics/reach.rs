//! Clusters that cannot be reached, or do not let the tool in.

use std::time::{Duration, Instant};

use chandler_tool::generated::tool::{
    ApplyMethod, FailureCategory, Impersonate, ReleaseStatus, StepKind, Target,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    Ability, Case, CaseError,
    chart::Chart,
    context::{Context, unobservable},
    network::{BlackHole, Tunnel, elsewhere},
    order::{Order as _, duration, recovering},
    tool::End,
};

pub const CASES: &[Case] = &[
    case!("reach/closed", None, closed, "A closed port is UNREACHABLE, at once."),
    case!(
        "reach/black-hole",
        None,
        black_hole,
        "A server that never answers is UNREACHABLE in time and holds up no other cluster."
    ),
    case!("reach/untrusted", None, untrusted, "A server with an unknown certificate is UNREACHABLE."),
    case!(
        "reach/unauthorized",
        None,
        unauthorized,
        "Credentials that the server does not know are UNAUTHORIZED."
    ),
    case!("reach/forbidden", None, forbidden, "Credentials without rights are FORBIDDEN."),
    case!(
        "reach/partly",
        None,
        partly_forbidden,
        "A right that is missing halfway is FORBIDDEN, and what is named."
    ),
    case!("reach/impersonated", None, impersonated, "Impersonation limits the tool to the user's rights."),
    case!("reach/dialled", None, dialled, "A target may be dialled through a unix socket."),
    case!(
        "reach/cut-off",
        Some(Ability::Wait),
        cut_off,
        "An operation whose cluster goes away ends in time and is recovered from."
    ),
];

/// Every verb that touches a cluster fails with this category.
async fn all_fail(context: &Context, target: &Target, category: FailureCategory) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let install = context.install("web", &package, "").on(target.clone());
    context.tool.apply(install).await?.failure(category)?;
    context.tool.remove(context.removal("web").on(target.clone())).await?.failure(category)?;
    unobservable(context.tool.observe(target.clone(), context.release("web"), 0).await?, category)?;
    context.agree_absent("web").await
}

async fn closed(context: &Context) -> Result<(), CaseError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    drop(listener);
    let started = Instant::now();
    all_fail(context, &elsewhere(context, format!("https://{address}")), FailureCategory::Unreachable)
        .await?;
    ensure!(
        started.elapsed() < Duration::from_secs(20),
        "three refused connections took {:?}",
        started.elapsed()
    );
    Ok(())
}

async fn black_hole(context: &Context) -> Result<(), CaseError> {
    let hole = BlackHole::open().await?;
    let package = context.pack(&Chart::config())?;
    let mut slow = elsewhere(context, hole.server.clone());
    slow.request_timeout = duration(Duration::from_secs(8));
    let held =
        context.install("held", &package, "").with(|options| options.method = ApplyMethod::ClientSide.into());
    let held = context.tool.begin_apply(held.on(slow.clone())).await?;

    // Its own process is the one that is held, so it is the one to be asked.
    let started = Instant::now();
    for (name, method) in [("server", ApplyMethod::ServerSide), ("client", ApplyMethod::ClientSide)] {
        let request = context.install(name, &package, "").with(|options| options.method = method.into());
        context.tool.apply(request).await?.state()?;
    }
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(6), "two installs elsewhere took {took:?} beside a black hole");

    held.end().await?.failure(FailureCategory::Unreachable)?;
    ensure!(started.elapsed() < Duration::from_mins(1), "the black hole held for {:?}", started.elapsed());
    slow.request_timeout = duration(Duration::from_secs(1));
    unobservable(context.tool.observe(slow, context.release("held"), 0).await?, FailureCategory::Unreachable)
        .map(drop)
}

async fn untrusted(context: &Context) -> Result<(), CaseError> {
    let mut target = elsewhere(context, context.target().server);
    // No authority at all means the machine's own, which have not signed this server.
    target.tls.get_or_insert_default().ca_pem.clear();
    all_fail(context, &target, FailureCategory::Unreachable).await
}

async fn unauthorized(context: &Context) -> Result<(), CaseError> {
    all_fail(context, &context.target_with_token("not-a-token"), FailureCategory::Unauthorized).await
}

async fn forbidden(context: &Context) -> Result<(), CaseError> {
    let target = context.account("nobody", false).await?;
    all_fail(context, &target, FailureCategory::Forbidden).await
}

async fn partly_forbidden(context: &Context) -> Result<(), CaseError> {
    let target = context.account("half", false).await?;
    let role = json!({"metadata": {"name": "half"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]});
    let binding = json!({
        "metadata": {"name": "half"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "half"},
        "subjects": [{"kind": "ServiceAccount", "name": "half", "namespace": context.namespace}],
    });
    let read = |error: serde_json::Error| CaseError::Host(error.into());
    let (role, binding): (Role, RoleBinding) =
        (serde_json::from_value(role).map_err(read)?, serde_json::from_value(binding).map_err(read)?);
    context.api().create(&PostParams::default(), &role).await?;
    context.api().create(&PostParams::default(), &binding).await?;
    let package = context.pack(&Chart::config())?;
    let failure =
        context.refused(context.install("web", &package, "").on(target), FailureCategory::Forbidden).await?;
    ensure!(
        failure.message.contains("configmaps"),
        "the message does not name the resource: {}",
        failure.message
    );
    Ok(())
}

async fn impersonated(context: &Context) -> Result<(), CaseError> {
    let target = Target {
        cluster: format!("{}/impersonated", context.namespace),
        impersonate: Some(Impersonate { user: "somebody".to_owned(), groups: Vec::new() }),
        ..context.target()
    };
    all_fail(context, &target, FailureCategory::Forbidden).await
}

async fn dialled(context: &Context) -> Result<(), CaseError> {
    let tunnel = Tunnel::open(context)?;
    let package = context.pack(&Chart::config())?;
    context.applied(context.install("web", &package, "").on(tunnel.target.clone())).await.map(drop)
}

async fn cut_off(context: &Context) -> Result<(), CaseError> {
    let tunnel = Tunnel::open(context)?;
    let package = context.pack(&Chart::deployment())?;
    let request = context.install("web", &package, "stuck: true").with(|options| {
        options.wait = true;
        options.timeout = duration(Duration::from_secs(4));
    });
    let mut running = context.tool.begin_apply(request.on(tunnel.target.clone())).await?;
    running.until(StepKind::Waiting).await?;
    drop(tunnel);
    let started = Instant::now();
    let ended = running.end().await?;
    ensure!(matches!(ended.end, End::Failure(_)), "the operation ended in {:?}", ended.end);
    ensure!(started.elapsed() < Duration::from_secs(20), "the end took {:?}", started.elapsed());
    let state = context.observed("web").await?;
    ensure!(state.status() == ReleaseStatus::PendingInstall, "left is {}", state.status().as_str_name());
    let request = context.upgrade("web", &package, "").with(|options| options.wait = true);
    context.applied(recovering(request)).await.map(drop)
}
