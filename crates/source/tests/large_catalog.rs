//! Measures time and memory of a large catalog. A separate binary, because memory is measured per process. The catalog is only
//! really large in a release build:
//! `cargo test --release -p chandler-source --test large_catalog -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

mod support;

use std::{fmt::Write as _, fs::File, io::Write as _, os::unix::fs::FileExt as _, sync::Arc, time::Instant};

use axum::{body::Body, http::HeaderMap, response::IntoResponse as _};
use bytes::Bytes;
use chandler_core::catalog::Selection;
use chandler_source::{CatalogRequest, Limits};
use futures::stream;

use crate::support::{
    env::{TestEnv, options},
    server::Server,
};

/// Without optimization, the parser is twenty times slower, so its speed is not checked.
const IS_FAST: bool = !cfg!(debug_assertions);
const CHARTS: usize = if IS_FAST { 10_000 } else { 200 };
const VERSIONS: usize = 10;
/// Number of the chart to search. It is not a prefix of the number of any other chart.
const ONE: usize = CHARTS - 58;
const MEGABYTE: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;

fn write_index(file: &mut File) {
    let description = "A chart among many, described at such length as its authors found fitting. ".repeat(3);
    writeln!(file, "apiVersion: v1\nentries:").unwrap();
    for chart in 0..CHARTS {
        let mut text = format!("  chart-{chart}:\n");
        for version in 0..VERSIONS {
            write!(
                text,
                "  - annotations:\n      category: Database\n      licenses: Apache-2.0\n    apiVersion: v2\n    \
                 appVersion: {version}.0.0\n    created: \"2026-01-01T00:00:00.000000000Z\"\n    dependencies:\n    \
                 - name: common\n      repository: https://charts.example\n      version: 1.x.x\n    description: \
                 {description}\n    digest: {version:064x}\n    home: https://charts.example\n    keywords:\n    - \
                 one\n    - two\n    - word-{chart}\n    kubeVersion: '>=1.30.0-0'\n    maintainers:\n    - email: \
                 ann@charts.example\n      name: Ann\n    name: chart-{chart}\n    sources:\n    - \
                 https://code.example/chart-{chart}\n    urls:\n    - \
                 https://charts.example/chart-{chart}-1.{version}.0.tgz\n    version: 1.{version}.0\n"
            )
            .unwrap();
        }
        file.write_all(text.as_bytes()).unwrap();
    }
}

/// Streams the file, so that the server does not keep a copy in this process.
fn stream_file(file: &Arc<File>) -> Body {
    let chunks = stream::unfold((file.clone(), 0), |(file, position)| async move {
        let mut chunk = vec![0; CHUNK];
        let read = file.read_at(&mut chunk, position).unwrap();
        chunk.truncate(read);
        let next = (file, position + read as u64);
        (read > 0).then(|| (Ok::<_, std::convert::Infallible>(Bytes::from(chunk)), next))
    });
    Body::from_stream(chunks)
}

/// Returns the peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_catalog_is_read_and_searched_fast() {
    let env = TestEnv::new();
    let mut file = tempfile::tempfile_in(env.directory.path()).unwrap();
    write_index(&mut file);
    let bytes = file.metadata().unwrap().len();
    let file = Arc::new(file);
    let content = file.clone();
    let respond = move |_: &str, _: &HeaderMap| stream_file(&content).into_response();
    let server = Server::start(&env.authority, respond).await;
    let mut options = options();
    options.limits = Limits::default();
    let (packages, access) = (env.packages_with(options), env.access());
    let (url, selection) = (server.url(), Selection::new(None).unwrap());

    let started = Instant::now();
    let request = CatalogRequest { key: "large", url: &url, access: &access, selection: &selection };
    let catalog = packages.read_catalog(request).await.unwrap();
    let read = started.elapsed();
    assert_eq!(catalog.packages() as usize, CHARTS);

    let started = Instant::now();
    let found = catalog.search(&format!("word-{ONE} described")).unwrap();
    let one = started.elapsed();
    assert_eq!((found.len(), found[0].name.clone()), (1, format!("chart-{ONE}")));
    let started = Instant::now();
    assert_eq!(catalog.search("fitting").unwrap().len(), CHARTS);
    let every = started.elapsed();
    let started = Instant::now();
    assert_eq!(catalog.chart("chart-99").unwrap().unwrap().versions.len(), VERSIONS);
    let shown = started.elapsed();
    let megabytes = |bytes: u64| bytes / MEGABYTE;
    println!(
        "{} versions in {} MB: read in {read:?}, peak {} MB; searched in {one:?} (one found), {every:?} (all found); \
         shown in {shown:?}",
        CHARTS * VERSIONS,
        megabytes(bytes),
        megabytes(peak())
    );
    assert!(peak() < 200 * MEGABYTE, "{} MB", megabytes(peak()));
    if IS_FAST {
        assert!(read.as_secs() < 10, "{read:?}");
        assert!(one.as_millis() < 50 && every.as_millis() < 50, "{one:?} {every:?}");
    }
}
