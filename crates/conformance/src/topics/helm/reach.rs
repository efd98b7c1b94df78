//! A cluster that never answers, with Helm's apply methods.

use std::time::{Duration, Instant};

use chandler_tool::generated::tool::{ApplyMethod, FailureCategory};

use crate::{
    Case, CaseError,
    chart::Chart,
    context::Context,
    network::{BlackHole, elsewhere},
    request::{RequestExt as _, duration},
};

pub const CASES: &[Case] = &[case!(
    "helm/reach/black-hole",
    [HelmRecords],
    black_hole,
    "A cluster that never answers delays no other cluster, with both apply methods."
)];

async fn black_hole(context: &Context) -> Result<(), CaseError> {
    let hole = BlackHole::open().await?;
    let package = context.pack_chart(&Chart::config())?;
    let mut slow = elsewhere(context, hole.server.clone());
    slow.request_timeout = duration(Duration::from_secs(8));
    let held =
        context.install("held", &package, "").with(|options| options.method = ApplyMethod::ClientSide.into());
    let held = context.tool.begin_apply(held.on(slow)).await?;
    let started = Instant::now();
    for (name, method) in [("server", ApplyMethod::ServerSide), ("client", ApplyMethod::ClientSide)] {
        let request = context.install(name, &package, "").with(|options| options.method = method.into());
        context.tool.apply(request).await?.state()?;
    }
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(6), "two installs on another cluster took {took:?}");
    held.end().await?.failure(FailureCategory::Unreachable)?;
    ensure!(started.elapsed() < Duration::from_mins(1), "the operation took {:?}", started.elapsed());
    Ok(())
}
