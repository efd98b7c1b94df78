//! Clusters that cannot be reached, or that reject the tool's credentials.

use std::time::{Duration, Instant};

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind, Target};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    Case, CaseError,
    context::{Context, observe_failed},
    hold::Hold,
    network::{BlackHole, ConnectProxy, elsewhere, login},
    package::TestPackage,
    request::{RequestExt as _, duration, recovering},
    tool::{End, Running},
};

pub const CASES: &[Case] = &[
    case!("reach/closed", [], closed, "A closed port is UNREACHABLE, without delay."),
    case!(
        "reach/black-hole",
        [],
        black_hole,
        "A server that never answers is UNREACHABLE in time and delays no other cluster."
    ),
    case!("reach/untrusted", [], untrusted, "A server with an unknown certificate is UNREACHABLE."),
    case!("reach/unauthorized", [], unauthorized, "Unknown credentials are UNAUTHORIZED."),
    case!("reach/forbidden", [], forbidden, "Credentials without permissions are FORBIDDEN."),
    case!(
        "reach/partly",
        [],
        partly_forbidden,
        "A permission that is missing for one object is FORBIDDEN, and the resource is named."
    ),
    case!(
        "reach/proxied",
        [],
        proxied,
        "A target is reached only through its proxy, with the proxy's credentials. A proxy that refuses them is UNREACHABLE, \
         and the failure does not contain them."
    ),
    case!(
        "reach/cut-off",
        [],
        cut_off,
        "An operation that loses its cluster ends in time, and the release can be recovered."
    ),
    case!(
        "reach/cut-off-waiting",
        [Wait],
        cut_off_waiting,
        "An operation that loses its cluster while it waits ends in time, and the release can be recovered."
    ),
];

/// Checks that every method that sends requests fails with this category.
async fn all_fail(context: &Context, target: &Target, category: FailureCategory) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let install = context.install("web", &package, json!({})).on(target.clone());
    context.tool.apply(install).await?.failure(category)?;
    context.tool.remove(context.removal("web").on(target.clone())).await?.failure(category)?;
    observe_failed(context.tool.observe(target.clone(), context.release("web"), 0).await?, category)?;
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
    let package = context.pack(&TestPackage::config()).await?;
    let mut slow = elsewhere(context, hole.server.clone());
    slow.request_timeout = duration(Duration::from_secs(8));
    let held = context.install("held", &package, json!({})).on(slow.clone());
    let held = context.tool.begin_apply(held).await?;

    // The same process serves the other cluster.
    let started = Instant::now();
    for name in ["one", "two"] {
        context.tool.apply(context.install(name, &package, json!({}))).await?.state()?;
    }
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(6), "two installs on another cluster took {took:?}");

    held.end().await?.failure(FailureCategory::Unreachable)?;
    ensure!(started.elapsed() < Duration::from_mins(1), "the operation took {:?}", started.elapsed());
    slow.request_timeout = duration(Duration::from_secs(1));
    observe_failed(
        context.tool.observe(slow, context.release("held"), 0).await?,
        FailureCategory::Unreachable,
    )
    .map(drop)
}

async fn untrusted(context: &Context) -> Result<(), CaseError> {
    let mut target = elsewhere(context, context.target().server);
    // Without a CA the system's CAs count, and none of them has signed this server's certificate.
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
    let records = &context.profile.records()?.resource;
    let permission = json!({"apiGroups": [records.group], "resources": [records.plural], "verbs": ["*"]});
    context.grant("half", &json!([permission])).await?;
    // A kind that no tool records its releases in.
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: $(release)}\nspec: {ports: [{port: 80}]}\n";
    let package = context.pack(&TestPackage::new("service").manifest(service)).await?;
    let request = context.install("web", &package, json!({})).on(target);
    let failure = context.apply_fails(request, FailureCategory::Forbidden).await?;
    ensure!(
        failure.message.contains("services"),
        "the message does not name the resource: {}",
        failure.message
    );
    Ok(())
}

async fn proxied(context: &Context) -> Result<(), CaseError> {
    let proxy = ConnectProxy::open(context).await?;
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({})).on(proxy.target.clone());
    context.apply(request).await?;
    ensure!(proxy.forwarded() > 0, "the tool has not sent a CONNECT request for the server to the proxy");
    ensure!(proxy.refused() == 0, "the proxy has refused {} of the tool's requests", proxy.refused());

    for (name, auth) in [("anonymous", None), ("mistaken", Some(login("wrong-canary")))] {
        let refused = proxy.target_with_login(context, name, auth);
        let observed = context.tool.observe(refused, context.release("web"), 0).await?;
        let failure = observe_failed(observed, FailureCategory::Unreachable)?;
        ensure!(
            !failure.message.contains("canary"),
            "the failure contains the password: {}",
            failure.message
        );
        ensure!(proxy.refused() > 0, "the tool has not asked the proxy");
    }
    Ok(())
}

/// Checks that an operation without a cluster ends in time with a failure, and leaves a pending install.
async fn ends(context: &Context, running: Running) -> Result<(), CaseError> {
    let started = Instant::now();
    let ended = running.end().await?;
    ensure!(matches!(ended.end, End::Failure(_)), "the operation ended in {:?}", ended.end);
    ensure!(started.elapsed() < Duration::from_secs(20), "the end took {:?}", started.elapsed());
    let state = context.observe_existing("web").await?;
    ensure!(state.status() == ReleaseStatus::PendingInstall, "left is {}", state.status().as_str_name());
    Ok(())
}

async fn cut_off(context: &Context) -> Result<(), CaseError> {
    let proxy = ConnectProxy::open(context).await?;
    let package = context.pack(&TestPackage::held()).await?;
    let hold = Hold::start(context).await?;
    let request = context
        .install("web", &package, json!({}))
        .with(|options| options.timeout = duration(Duration::from_secs(4)))
        .on(proxy.target.clone());
    let running = context.tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    drop(proxy);
    ends(context, running).await?;
    hold.release().await?;
    context.apply(recovering(context.upgrade("web", &package, json!({})))).await.map(drop)
}

async fn cut_off_waiting(context: &Context) -> Result<(), CaseError> {
    let proxy = ConnectProxy::open(context).await?;
    let stuck = context.pack(&TestPackage::stuck_deployment()).await?;
    let request = context.install("web", &stuck, json!({})).with(|options| {
        options.wait = true;
        options.timeout = duration(Duration::from_secs(4));
    });
    let mut running = context.tool.begin_apply(request.on(proxy.target.clone())).await?;
    running.until_step(StepKind::Waiting).await?;
    drop(proxy);
    ends(context, running).await?;
    let ready = context.pack(&TestPackage::deployment(1)).await?;
    let request = context.upgrade("web", &ready, json!({})).with(|options| options.wait = true);
    context.apply(recovering(request)).await.map(drop)
}
