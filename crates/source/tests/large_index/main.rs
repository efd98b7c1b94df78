//! What a large index costs: measured by the kernel, so this process does nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../sources/server.rs"]
mod server;
#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../sources/world.rs"]
mod world;

use std::{fmt::Write as _, time::Instant};

use axum::response::IntoResponse as _;

use crate::{
    server::Server,
    world::{World, options, reference},
};

const CHARTS: usize = 100;
const VERSIONS: usize = 100;
const MEGABYTE: u64 = 1 << 20;

/// As published ones look: most of it is not needed to find a version.
fn large_index() -> String {
    let description =
        "A chart among many, described at such length as its authors found fitting. ".repeat(20);
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for chart in 0..CHARTS {
        writeln!(text, "  chart-{chart}:").unwrap();
        for version in 0..VERSIONS {
            write!(
                text,
                "  - annotations:\n      category: Database\n      licenses: Apache-2.0\n    apiVersion: v2\n    \
                 appVersion: {version}.0.0\n    created: \"2026-01-01T00:00:00.000000000Z\"\n    dependencies:\n    \
                 - name: common\n      repository: https://charts.example\n      version: 1.x.x\n    description: \
                 {description}\n    digest: {version:064x}\n    home: https://charts.example\n    keywords:\n    - \
                 one\n    - two\n    - three\n    maintainers:\n    - email: ann@charts.example\n      name: Ann\n    \
                 name: chart-{chart}\n    sources:\n    - https://code.example/chart-{chart}\n    urls:\n    - \
                 https://charts.example/chart-{chart}-1.{version}.0.tgz\n    version: 1.{version}.0\n"
            )
            .unwrap();
        }
    }
    text
}

/// The most memory this process ever had, in bytes; counted anew from `reset`.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn reset() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_index_takes_seconds_and_little_memory() {
    let world = World::new();
    let text: &'static str = large_index().leak();
    let bytes = text.len() as u64;
    assert!(bytes > 20_000_000, "{bytes}");
    // The server hands out what it has, without a copy.
    let server =
        Server::start(&world.authority, |_, _| bytes::Bytes::from_static(text.as_bytes()).into_response())
            .await;
    let mut patient = options();
    patient.limits = chandler_source::Limits::default();
    let (packages, access) = (world.packages_with(patient), world.access());
    reset();
    let (before, started) = (peak(), Instant::now());
    let found = packages.resolve(&reference(&server.url(), "chart-42", None), &access).await.unwrap();
    let (took, grown) = (started.elapsed(), peak() - before);
    assert_eq!(found.version, "1.99.0");
    let again = Instant::now();
    packages.resolve(&reference(&server.url(), "chart-7", Some("~1.5.0")), &access).await.unwrap();
    println!(
        "{} versions in {} MB: {took:?}, peak {} MB more than before; another chart of it: {:?}",
        CHARTS * VERSIONS,
        bytes / MEGABYTE,
        grown / MEGABYTE,
        again.elapsed()
    );
    assert!(grown < 130 * MEGABYTE, "{} MB", grown / MEGABYTE);
    // Without optimisation the parser is twenty times slower.
    let limit = if cfg!(debug_assertions) { 120 } else { 10 };
    assert!(took.as_secs() < limit, "{took:?}");
}
