//! Hostile sources: each is rejected in bounded time and memory, and the message names the problem.

use std::time::{Duration, Instant};

use axum::response::IntoResponse as _;
use chandler_source::{Limits, SourceOptions};

use crate::support::{
    env::{TestEnv, failure, get, options},
    server::{Server, endless, index, not_found, redirect},
};

/// Returns the failure of a repository with these responses, and the time until it failed.
async fn rejected(
    respond: impl Fn(&str) -> axum::response::Response + Clone + Send + Sync + 'static,
) -> (String, Duration) {
    rejected_with(options().limits, respond).await
}

async fn rejected_with(
    limits: Limits,
    respond: impl Fn(&str) -> axum::response::Response + Clone + Send + Sync + 'static,
) -> (String, Duration) {
    let env = TestEnv::new();
    let server = Server::start(&env.authority, move |path, _| respond(path)).await;
    let started = Instant::now();
    let limits = Limits { index_bytes: 1 << 20, package_bytes: 1 << 20, ..limits };
    let packages = env.packages_with(SourceOptions { limits, ..options() });
    let result = get(&packages, &server.url(), &env.access()).await;
    (failure(result), started.elapsed())
}

fn valid_index_and(
    archive: impl Fn() -> axum::response::Response + Clone,
) -> impl Fn(&str) -> axum::response::Response + Clone {
    move |path| if path == "/index.yaml" { index("web.tgz", None) } else { archive() }
}

fn flood() -> axum::response::Response {
    endless(vec![b'#'; 1 << 16], Duration::ZERO)
}

#[tokio::test]
async fn endless_responses_are_aborted() {
    let (message, _) = rejected(|_| flood()).await;
    assert!(message.contains("index.yaml is larger than the limit of 1048576 bytes"), "{message}");
    let (message, _) = rejected(valid_index_and(flood)).await;
    assert!(message.contains("web.tgz is larger than the limit of 1048576 bytes"), "{message}");
}

#[tokio::test]
async fn content_lengths_above_the_limit_are_rejected() {
    let (message, _) = rejected(|_| vec![b' '; 2 << 20].into_response()).await;
    assert!(message.contains("larger than the limit"), "{message}");
}

#[tokio::test]
async fn slow_responses_time_out() {
    // No pause is long enough for the read timeout.
    let (read_timeout, total_timeout) = (Duration::from_secs(3), Duration::from_secs(4));
    let limits = Limits { read_timeout, total_timeout, ..options().limits };
    let (message, took) = rejected_with(limits, |_| endless(b"#".to_vec(), Duration::from_millis(100))).await;
    assert!(message.contains("did not send a complete response within 4 s"), "{message}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    // One chunk, and then nothing: the read timeout ends it long before the total one.
    let limits = Limits { read_timeout: Duration::from_secs(2), ..options().limits };
    let (message, took) = rejected_with(limits, |_| endless(b"#".to_vec(), Duration::from_hours(1))).await;
    assert!(message.starts_with("SourceUnavailable") && took < limits.total_timeout, "{message} {took:?}");
}

#[tokio::test]
async fn redirects_are_limited() {
    let (message, _) = rejected(|_| redirect("/again")).await;
    assert!(message.contains("more than 5 redirects"), "{message}");
}

#[tokio::test]
async fn redirects_and_indexes_cannot_refer_to_refused_addresses() {
    let refused = [
        ("https://127.0.0.2/x", "a loopback address"),
        ("https://[::1]/x", "a loopback address"),
        ("https://[::ffff:127.0.0.9]/x", "a loopback address"),
        ("https://2130706434/x", "a loopback address"),
        ("https://169.254.169.254/latest/meta-data", "a link-local address"),
        ("https://0.0.0.0/x", "an unspecified address"),
        ("http://charts.example/x", "not an https:// or oci:// address"),
        ("file:///etc/passwd", "not an https:// or oci:// address"),
        ("https://user:canary@charts.example/x", "without a user name"),
    ];
    for (target, text) in refused {
        let (redirected, _) = rejected(move |_| redirect(target)).await;
        let (indexed, _) = rejected(index_with(target)).await;
        for message in [redirected, indexed] {
            assert!(message.starts_with("InvalidSpec") && message.contains(text), "{target}: {message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}

#[tokio::test]
async fn messages_show_urls_without_their_queries() {
    let signed = "/signed?signature=canary";
    let missing = move |path: &str| if path == signed { not_found() } else { redirect(signed) };
    let (message, _) = rejected(missing).await;
    assert!(message.contains("/signed returned HTTP 404") && !message.contains("canary"), "{message}");
    let (message, _) = rejected(move |path| if path == signed { flood() } else { redirect(signed) }).await;
    assert!(message.contains("/signed is larger") && !message.contains("canary"), "{message}");
    let (message, _) = rejected(index_with("web.tgz?signature=canary")).await;
    assert!(message.contains("web.tgz is not a valid chart") && !message.contains("canary"), "{message}");
}

fn index_with(target: &'static str) -> impl Fn(&str) -> axum::response::Response + Clone {
    move |path| if path == "/index.yaml" { index(target, None) } else { "".into_response() }
}

#[tokio::test]
async fn host_names_are_checked_by_the_address_that_they_resolve_to() {
    let env = TestEnv::new();
    let server = Server::start(&env.authority, |_, _| index("web.tgz", None)).await;
    let addresses = SourceOptions::default().addresses;
    let strict = env.packages_with(SourceOptions { addresses, ..options() });
    for url in [server.url_by_name(), server.url()] {
        let message = failure(get(&strict, &url, &env.access()).await);
        assert!(message.starts_with("InvalidSpec"), "{message}");
        assert!(message.contains("--allow-source-address 127.0.0.1"), "{message}");
    }
    assert!(server.requests().is_empty(), "nothing is sent before the address is checked");
    let oci = server.url_by_name().replace("https://", "oci://");
    let message = failure(get(&strict, &oci, &env.access()).await);
    assert!(message.contains("a loopback address"), "{message}");
    // The same name is accepted if its address is allowed.
    let message = failure(get(&env.packages(), &server.url_by_name(), &env.access()).await);
    assert!(message.contains("not a valid chart archive"), "{message}");
}

#[tokio::test]
async fn invalid_indexes_and_archives_are_rejected() {
    let rows = [
        ("a: &a [x]\nentries: {}\n", "anchor"),
        ("<html>Sign in</html>", "the index of repository"),
        ("entries: {other: []}\n", "has no chart web"),
        (
            "entries: {web: [{version: 2.0.0, urls: [x]}]}\n",
            "no version 1.0.0 of chart web; newest there: 2.0.0",
        ),
        ("entries: {web: [{version: 1.0.0, urls: [x], digest: md5}]}\n", "not a sha256"),
    ];
    for (index, text) in rows {
        let (message, _) = rejected(move |_| index.into_response()).await;
        assert!(message.contains(text), "{message:?} does not contain {text:?}");
    }
    let (message, _) = rejected(valid_index_and(|| "no archive".into_response())).await;
    assert!(
        message.starts_with("InvalidPackage") && message.contains("not a valid chart archive"),
        "{message}"
    );
}
