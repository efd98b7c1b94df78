//! Files in OCI artifacts.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{http::HeaderMap, response::IntoResponse as _};
use chandler_core::{digest::Digest, failure::Failure};
use chandler_source::{
    Access, ArtifactFiles, GitLimits, Limits, Packages, SourceError, SourceOptions, TreeLimits,
};
use flate2::{Compression, write::GzEncoder};
use futures::future::join_all;
use serde_json::json;
use tar::{Builder, Header};

use crate::support::{
    env::{TestEnv, options},
    server::{Server, not_found},
};

const FLUX: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// A registry with one artifact, which a test can replace.
struct Registry {
    server: Server,
    /// The manifest, and what is served as its layer.
    content: Arc<Mutex<(String, Vec<u8>)>>,
}

impl Registry {
    async fn start(env: &TestEnv) -> Self {
        let content = Arc::<Mutex<(String, Vec<u8>)>>::default();
        let served = content.clone();
        let respond = move |path: &str, _: &HeaderMap| {
            let (manifest, layer) = served.lock().unwrap().clone();
            let by_digest = format!("/v2/fleet/manifests/{}", Digest::of(&manifest));
            match path {
                "/v2/fleet/manifests/latest" | "/v2/fleet/manifests/v1.0.0" => manifest.into_response(),
                path if path == by_digest => manifest.into_response(),
                path if path.starts_with("/v2/fleet/tags/list") => {
                    json!({"tags": ["latest", "v1.0.0"]}).to_string().into_response()
                }
                path if path.starts_with("/v2/fleet/blobs/") => layer.into_response(),
                _ => not_found(),
            }
        };
        Self { server: Server::start(&env.authority, respond).await, content }
    }

    fn url(&self) -> String {
        format!("{}/fleet", self.server.url().replace("https://", "oci://"))
    }

    /// Replaces the artifact. Returns the digest of its manifest.
    fn push(&self, media_type: &str, layer: &[u8]) -> String {
        self.push_as(media_type, layer, Digest::of(layer).as_str(), layer.len())
    }

    fn push_as(&self, media_type: &str, layer: &[u8], digest: &str, size: usize) -> String {
        let manifest = json!({
            "layers": [{"mediaType": media_type, "digest": digest, "size": size}],
            "annotations": {"org.opencontainers.image.revision": "main@sha1:abc"},
        })
        .to_string();
        let id = Digest::of(&manifest).to_string();
        *self.content.lock().unwrap() = (manifest, layer.to_vec());
        id
    }

    fn requests(&self, part: &str) -> usize {
        self.server.requests().iter().filter(|(path, _)| path.contains(part)).count()
    }
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Accepts the result of a request that is in progress. With zero, a caller needs one that begins after its own.
const IN_PROGRESS: Duration = Duration::from_nanos(1);

async fn fetch(
    packages: &Packages,
    url: &str,
    reference: &str,
    access: &Access,
    ignore: &[&str],
) -> Result<Arc<ArtifactFiles>, SourceError> {
    let artifact = packages.artifact(url, reference, access, IN_PROGRESS).await?;
    let ignore: Vec<_> = ignore.iter().map(|pattern| (*pattern).to_owned()).collect();
    packages.artifact_files(&artifact, access, &ignore, "team").await
}

fn message(result: Result<Arc<ArtifactFiles>, SourceError>) -> String {
    let failure = Failure::from(result.unwrap_err());
    format!("{}: {}", failure.category, failure.message)
}

#[tokio::test]
async fn artifacts_are_fetched_by_tag_and_digest() {
    let env = TestEnv::new();
    let registry = Registry::start(&env).await;
    let (packages, access, url) = (env.packages(), env.access(), registry.url());
    let first = registry.push(FLUX, &archive(&[("apps/a.yaml", "a: 1"), ("README.md", "text")]));
    let artifact = packages.artifact(&url, "latest", &access, Duration::ZERO).await.unwrap();
    assert_eq!((&*artifact.record.id, &*artifact.record.subject), (&*first, "main@sha1:abc"));
    for reference in ["latest", "v1.0.0", &first] {
        let files = fetch(&packages, &url, reference, &access, &["*.md"]).await.unwrap();
        assert_eq!(files.tree.revision, first);
        let paths: Vec<_> = files.tree.files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["apps/a.yaml"], "{reference}");
    }
    let tags = packages.artifact_tags(&url, &access, Duration::ZERO, "team").await.unwrap();
    assert_eq!(*tags, ["latest", "v1.0.0"]);
    let second =
        registry.push("application/vnd.oci.image.layer.v1.tar+gzip", &archive(&[("b.yaml", "b: 1")]));
    let files = fetch(&packages, &url, "latest", &access, &[]).await.unwrap();
    assert_eq!((&files.tree.revision, files.tree.files.len()), (&second, 1), "a push is a new revision");
    let missing = message(fetch(&packages, &url, "v2", &access, &[]).await);
    assert!(missing.starts_with("PackageNotFound") && missing.contains("has no artifact v2"), "{missing}");
}

#[tokio::test]
async fn callers_with_the_same_url_and_credentials_share_requests() {
    let env = TestEnv::new();
    let registry = Registry::start(&env).await;
    let (packages, access, url) = (env.packages(), env.access(), registry.url());
    registry.push(FLUX, &archive(&[("a.yaml", "a: 1")]));
    let all = join_all((0..20).map(|_| fetch(&packages, &url, "latest", &access, &[]))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!((registry.requests("/manifests/"), registry.requests("/blobs/")), (1, 1));
    let age = Duration::from_mins(1);
    packages.artifact(&url, "latest", &access, age).await.unwrap();
    assert_eq!(registry.requests("/manifests/"), 1, "a poll of another Source serves this one");
    let other = env.access_with(&[("username", "other"), ("password", "canary")]);
    packages.artifact(&url, "latest", &other, age).await.unwrap();
    assert_eq!(registry.requests("/manifests/"), 2, "other credentials do not share it");
}

#[tokio::test]
async fn false_and_unusable_artifacts_are_refused() {
    let env = TestEnv::new();
    let registry = Registry::start(&env).await;
    let (access, url) = (env.access(), registry.url());
    let good = archive(&[("a.yaml", "a: 1")]);
    let other = archive(&[("a.yaml", "a: 2")]);
    let digest = Digest::of(&good).to_string();
    let rows = [
        ("SourceUnavailable", "larger than the limit", (FLUX, &good, &digest, 1 << 30)),
        ("InvalidPackage", "bytes, expected", (FLUX, &good, &digest, good.len() + 1)),
        ("InvalidPackage", "it was corrupted or replaced", (FLUX, &other, &digest, other.len())),
        ("InvalidPackage", "no layer of a type tar+gzip", ("text/plain", &good, &digest, good.len())),
    ];
    for (category, expected, (media_type, layer, digest, size)) in rows {
        registry.push_as(media_type, layer, digest, size);
        let refused = message(fetch(&env.packages(), &url, "latest", &access, &[]).await);
        assert!(refused.starts_with(category) && refused.contains(expected), "{refused}");
    }
    registry.push(FLUX, b"text");
    let refused = message(fetch(&env.packages(), &url, "latest", &access, &[]).await);
    assert!(refused.starts_with("InvalidPackage") && refused.contains("cannot be read"), "{refused}");
    registry.push(FLUX, &good);
    let empty = message(fetch(&env.packages(), &url, "latest", &access, &["*.yaml"]).await);
    assert!(empty.starts_with("InvalidPackage") && empty.contains("contains no files"), "{empty}");
}

#[tokio::test]
async fn limits_hold() {
    let env = TestEnv::new();
    let registry = Registry::start(&env).await;
    let (access, url, default) = (env.access(), registry.url(), TreeLimits::default());
    registry.push(FLUX, &archive(&[("a/b/c/d", "12345678"), ("e", "12345678")]));
    let rows = [
        (TreeLimits { bytes: 10, ..default }, "have more than 10 bytes; add large folders to spec.ignore"),
        (TreeLimits { entries: 1, ..default }, "it has more than 1 files and folders"),
        (TreeLimits { depth: 2, ..default }, "a/b/c/d is nested more than 2 folders deep"),
    ];
    for (tree, expected) in rows {
        let limits = Limits { tree, ..options().limits };
        let packages = env.packages_with(SourceOptions { limits, ..options() });
        let refused = message(fetch(&packages, &url, "latest", &access, &[]).await);
        assert!(refused.contains(expected), "{refused}");
        fetch(&packages, &url, "latest", &access, &["a"]).await.unwrap();
    }
}

#[tokio::test]
async fn a_list_of_tags_that_does_not_end_is_refused() {
    let env = TestEnv::new();
    let page = json!({"tags": ["a".repeat(4_000_000)]}).to_string();
    let respond = move |_: &str, _: &HeaderMap| {
        ([("link", r#"</v2/fleet/tags/list?last=a>; rel="next""#)], page.clone()).into_response()
    };
    let server = Server::start(&env.authority, respond).await;
    let url = format!("{}/fleet", server.url().replace("https://", "oci://"));
    let default = GitLimits::default();
    let rows = [
        (default, "/v2/fleet/tags/list is larger than the limit of 16777216 bytes"),
        (GitLimits { timeout: Duration::ZERO, ..default }, "did not send a complete response within 0 s"),
    ];
    for (git, expected) in rows {
        let limits = Limits { git, ..options().limits };
        let packages = env.packages_with(SourceOptions { limits, ..options() });
        let refused = packages.artifact_tags(&url, &env.access(), Duration::ZERO, "team").await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}
