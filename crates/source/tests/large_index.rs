//! Measures time and memory of a large index. A separate binary, because memory is measured per process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

mod support;

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use axum::{http::HeaderMap, response::IntoResponse as _};
use bytes::Bytes;
use chandler_source::{Limits, ResolvedPackage, SourceError};

use crate::support::{
    env::{TestEnv, options, reference},
    server::Server,
};

const CHARTS: usize = 100;
const VERSIONS: usize = 100;
const MEGABYTE: u64 = 1 << 20;

/// Returns an index like those of real repositories: most of it is not needed to resolve a version.
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

/// Returns the peak memory of this process in bytes since the last `reset_peak`.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The cost of resolving a chart of an index.
struct Measurement {
    result: Result<ResolvedPackage, SourceError>,
    duration: Duration,
    /// Growth of the peak memory in bytes.
    growth: u64,
}

async fn measure(text: String, chart: &str) -> Measurement {
    let env = TestEnv::new();
    let text: &'static str = text.leak();
    // The server does not copy the text.
    let respond = |_: &str, _: &HeaderMap| Bytes::from_static(text.as_bytes()).into_response();
    let server = Server::start(&env.authority, respond).await;
    let mut options = options();
    options.limits = Limits::default();
    let (packages, access) = (env.packages_with(options), env.access());
    reset_peak();
    let (before, started) = (peak(), Instant::now());
    let result = packages.resolve(&reference(&server.url(), chart, None), &access).await;
    Measurement { result, duration: started.elapsed(), growth: peak() - before }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_index_is_read_fast_and_with_little_memory() {
    let text = large_index();
    let bytes = text.len() as u64;
    assert!(bytes > 20_000_000, "{bytes}");
    let Measurement { result, duration, growth } = measure(text, "chart-42").await;
    assert_eq!(result.unwrap().version, "1.99.0");
    let megabytes = |bytes: u64| bytes / MEGABYTE;
    println!(
        "{} versions in {} MB: {duration:?}, peak {} MB more, {} MB with the server and its copy",
        CHARTS * VERSIONS,
        megabytes(bytes),
        megabytes(growth),
        megabytes(peak())
    );
    assert!(growth < 50 * MEGABYTE, "{} MB", megabytes(growth));
    // Without optimization, the parser is twenty times slower.
    let limit = if cfg!(debug_assertions) { 120 } else { 10 };
    assert!(duration.as_secs() < limit, "{duration:?}");

    let long = "x".repeat(1 << 20);
    let hostile = [
        ("one long text", format!("description: {long}\nentries: {{}}\n")),
        ("one long name", format!("entries:\n  ? {long}\n  : []\n")),
        ("one long URL", format!("entries: {{web: [{{version: 1.0.0, urls: [{long}]}}]}}\n")),
        ("many small things", format!("junk: [{}]\nentries: {{}}\n", "[],".repeat(1 << 18))),
        ("many keys", format!("junk: {{{}}}\nentries: {{}}\n", many_keys(50_000))),
    ];
    for (what, text) in hostile {
        let Measurement { result, duration, growth } = measure(text, "web").await;
        println!(
            "{what}: {duration:?}, peak {} MB more, {:?}",
            megabytes(growth),
            result.map(|resolved| resolved.version)
        );
        assert!(growth < 30 * MEGABYTE, "{what}: {} MB", megabytes(growth));
        assert!(duration.as_secs() < limit, "{what}: {duration:?}");
    }
}

fn many_keys(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        write!(text, "k{number}: 1, ").unwrap();
    }
    text
}
