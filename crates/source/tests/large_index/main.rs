//! What a large index costs: measured by the kernel, so this process does nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../sources/server.rs"]
mod server;
#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../sources/world.rs"]
mod world;

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use axum::{http::HeaderMap, response::IntoResponse as _};
use bytes::Bytes;
use chandler_source::{Limits, Resolved, SourceError};

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

/// What it took to resolve a chart of this index.
struct Measured {
    found: Result<Resolved, SourceError>,
    took: Duration,
    /// At most, more than before.
    grown: u64,
}

async fn measure(text: String, chart: &str) -> Measured {
    let world = World::new();
    let text: &'static str = text.leak();
    // The server hands out what it has, without a copy.
    let answer = |_: &str, _: &HeaderMap| Bytes::from_static(text.as_bytes()).into_response();
    let server = Server::start(&world.authority, answer).await;
    let mut patient = options();
    patient.limits = Limits::default();
    let (packages, access) = (world.packages_with(patient), world.access());
    reset();
    let (before, started) = (peak(), Instant::now());
    let found = packages.resolve(&reference(&server.url(), chart, None), &access).await;
    Measured { found, took: started.elapsed(), grown: peak() - before }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_index_takes_seconds_and_little_memory() {
    let text = large_index();
    let bytes = text.len() as u64;
    assert!(bytes > 20_000_000, "{bytes}");
    let Measured { found, took, grown } = measure(text, "chart-42").await;
    assert_eq!(found.unwrap().version, "1.99.0");
    let megabytes = |bytes: u64| bytes / MEGABYTE;
    println!(
        "{} versions in {} MB: {took:?}, peak {} MB more, {} MB with the server and its copy",
        CHARTS * VERSIONS,
        megabytes(bytes),
        megabytes(grown),
        megabytes(peak())
    );
    assert!(grown < 50 * MEGABYTE, "{} MB", megabytes(grown));
    // Without optimisation the parser is twenty times slower.
    let limit = if cfg!(debug_assertions) { 120 } else { 10 };
    assert!(took.as_secs() < limit, "{took:?}");

    let long = "x".repeat(1 << 20);
    let hostile = [
        ("one long text", format!("description: {long}\nentries: {{}}\n")),
        ("one long name", format!("entries:\n  ? {long}\n  : []\n")),
        ("one long address", format!("entries: {{web: [{{version: 1.0.0, urls: [{long}]}}]}}\n")),
        ("many small things", format!("junk: [{}]\nentries: {{}}\n", "[],".repeat(1 << 18))),
        ("many keys", format!("junk: {{{}}}\nentries: {{}}\n", numbered(50_000))),
    ];
    for (what, text) in hostile {
        let Measured { found, took, grown } = measure(text, "web").await;
        println!(
            "{what}: {took:?}, peak {} MB more, {:?}",
            megabytes(grown),
            found.map(|found| found.version)
        );
        assert!(grown < 30 * MEGABYTE, "{what}: {} MB", megabytes(grown));
        assert!(took.as_secs() < limit, "{what}: {took:?}");
    }
}

fn numbered(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        write!(text, "k{number}: 1, ").unwrap();
    }
    text
}
