//! Sources that mean harm: each is refused in bounded time and memory, and the message says what was wrong.

use std::time::{Duration, Instant};

use axum::response::IntoResponse as _;
use chandler_source::AddressPolicy;

use crate::{
    server::{Server, endless, index, redirect},
    world::{World, failure, get, options},
};

/// The failure of a repository that answers like this, and how long it took to see it.
async fn refused(
    answer: impl Fn(&str) -> axum::response::Response + Clone + Send + Sync + 'static,
) -> (String, Duration) {
    let world = World::new();
    let server = Server::start(&world.authority, move |path, _| answer(path)).await;
    let started = Instant::now();
    let mut options = options();
    options.limits.index_bytes = 1 << 20;
    options.limits.package_bytes = 1 << 20;
    let result = get(&world.packages_with(options), &server.url(), &world.access()).await;
    (failure(result), started.elapsed())
}

fn only_package(
    answer: impl Fn() -> axum::response::Response + Clone,
) -> impl Fn(&str) -> axum::response::Response + Clone {
    move |path| if path == "/index.yaml" { index("web.tgz", None) } else { answer() }
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let flood = || endless(vec![b'#'; 1 << 16], Duration::ZERO);
    let (message, _) = refused(move |_| flood()).await;
    assert!(message.contains("index.yaml is larger than the limit of 1048576 bytes"), "{message}");
    let (message, _) = refused(only_package(flood)).await;
    assert!(message.contains("web.tgz is larger than the limit of 1048576 bytes"), "{message}");
}

#[tokio::test]
async fn announced_sizes_are_believed_when_they_are_too_large() {
    let (message, _) = refused(|_| vec![b' '; 2 << 20].into_response()).await;
    assert!(message.contains("larger than the limit"), "{message}");
}

#[tokio::test]
async fn slow_answers_end_at_the_limit() {
    // Never a pause long enough to be noticed by itself.
    let (message, took) = refused(|_| endless(b"#".to_vec(), Duration::from_millis(100))).await;
    assert!(message.contains("did not answer in full within 4 s"), "{message}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    // Or one piece, and then nothing.
    let (message, took) = refused(|_| endless(b"#".to_vec(), Duration::from_hours(1))).await;
    assert!(message.starts_with("SourceUnavailable") && took < Duration::from_secs(4), "{message} {took:?}");
}

#[tokio::test]
async fn redirects_end() {
    let (message, _) = refused(|_| redirect("/again")).await;
    assert!(message.contains("more than 5 redirects"), "{message}");
}

#[tokio::test]
async fn neither_redirects_nor_indexes_lead_to_the_machine_or_its_cloud() {
    let inside = [
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
    for (target, hint) in inside {
        let (redirected, _) = refused(move |_| redirect(target)).await;
        let (pointed, _) = refused(only_index(target)).await;
        for message in [redirected, pointed] {
            assert!(message.starts_with("InvalidSpec") && message.contains(hint), "{target}: {message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}

fn only_index(target: &'static str) -> impl Fn(&str) -> axum::response::Response + Clone {
    move |path| if path == "/index.yaml" { index(target, None) } else { "".into_response() }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_it_leads_to() {
    let world = World::new();
    let server = Server::start(&world.authority, |_, _| index("web.tgz", None)).await;
    let strict = world
        .packages_with(chandler_source::SourceOptions { addresses: AddressPolicy::default(), ..options() });
    for url in [server.url_by_name(), server.url()] {
        let message = failure(get(&strict, &url, &world.access()).await);
        assert!(message.starts_with("InvalidSpec"), "{message}");
        assert!(message.contains("--allow-source-address 127.0.0.1"), "{message}");
    }
    assert!(server.seen().is_empty(), "nothing is sent before the address is known");
    let oci = server.url_by_name().replace("https://", "oci://");
    let message = failure(get(&strict, &oci, &world.access()).await);
    assert!(message.contains("a loopback address"), "{message}");
    // With leave, by the same name.
    let message = failure(get(&world.packages(), &server.url_by_name(), &world.access()).await);
    assert!(message.contains("not a chart archive"), "{message}");
}

#[tokio::test]
async fn indexes_and_archives_that_are_none() {
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
    for (text, hint) in rows {
        let (message, _) = refused(move |_| text.into_response()).await;
        assert!(message.contains(hint), "{message:?} does not say {hint:?}");
    }
    let (message, _) = refused(only_package(|| "no archive".into_response())).await;
    assert!(message.starts_with("InvalidPackage") && message.contains("not a chart archive"), "{message}");
}
