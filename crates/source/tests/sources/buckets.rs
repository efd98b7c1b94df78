//! Buckets, with a server that answers like S3.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use chandler_core::{failure::Failure, source::Bucket};
use chandler_source::{Access, AddressPolicy, Packages, SourceError, SourceOptions, SourceTree};
use futures::future::join_all;
use serde_json::json;

use crate::support::{
    env::{TestEnv, options},
    server::{Server, not_found, redirect},
};

type Objects = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

/// Returns the list of the objects as S3 does. The content is the tag, and `size` is added to the sizes.
fn list(objects: &[(&str, &str)], size: usize) -> Response {
    let mut xml = String::from("<ListBucketResult>");
    for (key, content) in objects {
        write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
             <ETag>\"{content}\"</ETag><Size>{}</Size></Contents>",
            content.len() + size
        )
        .unwrap();
    }
    xml.push_str("</ListBucketResult>");
    xml.into_response()
}

fn content(text: &str) -> Response {
    let headers =
        [("etag", format!("\"{text}\"")), ("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT".to_owned())];
    (headers, text.to_owned()).into_response()
}

/// Starts a server with the bucket `fleet`, which claims that each object has `size` bytes more.
async fn start(env: &TestEnv, size: usize) -> (Server, Objects) {
    let objects = Objects::default();
    let served = objects.clone();
    let respond = move |path: &str, _: &HeaderMap| {
        let objects = served.lock().unwrap().clone();
        if path.starts_with("/fleet?") {
            return list(&objects, size);
        }
        let found = objects.iter().find(|(key, _)| path.strip_prefix("/fleet/") == Some(*key));
        found.map_or_else(not_found, |(_, text)| content(text))
    };
    (Server::start(&env.authority, respond).await, objects)
}

fn bucket(server: &Server) -> Bucket {
    let fields = json!({"provider": "S3", "endpoint": server.url(), "name": "fleet", "prefix": "clusters"});
    serde_json::from_value(fields).unwrap()
}

/// Accepts the result of a request that is in progress. With zero, a caller needs one that begins after its own.
const IN_PROGRESS: Duration = Duration::from_nanos(1);

async fn fetch(
    packages: &Packages,
    bucket: &Bucket,
    access: &Access,
    ignore: &[&str],
) -> Result<Arc<SourceTree>, SourceError> {
    let ignore: Vec<_> = ignore.iter().map(|pattern| (*pattern).to_owned()).collect();
    let objects = packages.bucket_objects(bucket, access, &ignore, IN_PROGRESS, "team").await?;
    packages.bucket_files(&objects, access, "team").await
}

fn message(result: Result<Arc<SourceTree>, SourceError>) -> String {
    let failure = Failure::from(result.unwrap_err());
    format!("{}: {}", failure.category, failure.message)
}

fn texts(tree: &SourceTree) -> Vec<(&str, &str)> {
    let files = tree.files.iter();
    files.map(|(path, content)| (path.as_str(), std::str::from_utf8(content).unwrap())).collect()
}

#[tokio::test]
async fn objects_below_the_prefix_are_the_files() {
    let env = TestEnv::new();
    let (server, objects) = start(&env, 0).await;
    *objects.lock().unwrap() =
        vec![("clusters/", ""), ("clusters/apps/a.yaml", "a: 1"), ("clusters/README.md", "text")];
    let (packages, bucket) = (env.packages(), bucket(&server));
    let access = env.access_with(&[("accessKey", "id"), ("secretKey", "canary")]);
    let first = fetch(&packages, &bucket, &access, &["*.md"]).await.unwrap();
    assert_eq!(texts(&first), [("apps/a.yaml", "a: 1")]);
    let signed = server.requests().into_iter().all(|(_, sent)| {
        sent.is_some_and(|sent| {
            sent.starts_with("AWS4-HMAC-SHA256 Credential=id/") && !sent.contains("canary")
        })
    });
    assert!(signed, "{:?}", server.requests());
    *objects.lock().unwrap() = vec![("clusters/apps/a.yaml", "a: 2")];
    let second = fetch(&packages, &bucket, &access, &[]).await.unwrap();
    assert_eq!(texts(&second), [("apps/a.yaml", "a: 2")]);
    assert_ne!(first.revision, second.revision);
    let anonymous = fetch(&packages, &bucket, &env.access(), &[]).await.unwrap();
    assert_eq!(anonymous.revision, second.revision);
    assert!(server.requests().last().unwrap().1.is_none(), "without credentials, nothing is signed");
}

#[tokio::test]
async fn callers_with_the_same_bucket_and_credentials_share_requests() {
    let env = TestEnv::new();
    let (server, objects) = start(&env, 0).await;
    *objects.lock().unwrap() = vec![("clusters/a", "1")];
    let (packages, bucket, access) = (env.packages(), bucket(&server), env.access());
    let all = join_all((0..20).map(|_| fetch(&packages, &bucket, &access, &[]))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(server.requests().len(), 2, "one list and one object: {:?}", server.requests());
    let list = || packages.bucket_objects(&bucket, &access, &[], Duration::ZERO, "team");
    let all = join_all((0..20).map(|_| list())).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(server.requests().len(), 4, "one that had begun, and one for all others");
}

#[tokio::test]
async fn failures_are_reported_without_credentials() {
    let env = TestEnv::new();
    let (server, objects) = start(&env, 0).await;
    let (packages, bucket) = (env.packages(), bucket(&server));
    let access = env.access_with(&[("accessKey", "id"), ("secretKey", "canary")]);
    let empty = message(fetch(&packages, &bucket, &access, &[]).await);
    assert!(empty.starts_with("InvalidPackage") && empty.contains("it has no objects"), "{empty}");
    *objects.lock().unwrap() = vec![("clusters/a", "1")];
    let strict = env.packages_with(SourceOptions { addresses: AddressPolicy::default(), ..options() });
    let refused = message(fetch(&strict, &bucket, &access, &[]).await);
    assert!(refused.starts_with("InvalidSpec") && refused.contains("is not allowed"), "{refused}");
    let other = env.access_with(&[("accountKey", "canary")]);
    let wrong = message(fetch(&packages, &bucket, &other, &[]).await);
    assert!(wrong.contains("S3 needs accessKey and secretKey") && !wrong.contains("canary"), "{wrong}");

    let (short, objects) = start(&env, 1).await;
    *objects.lock().unwrap() = vec![("clusters/a", "1")];
    let changed = message(fetch(&packages, &self::bucket(&short), &access, &[]).await);
    assert!(changed.contains("changed while it was read"), "{changed}");

    let denied = Server::start(&env.authority, |_, _| {
        (StatusCode::FORBIDDEN, "<Error><AWSAccessKeyId>canary</AWSAccessKeyId></Error>").into_response()
    })
    .await;
    let refused = message(fetch(&packages, &self::bucket(&denied), &access, &[]).await);
    assert!(refused.contains("HTTP 403: check the credentials") && !refused.contains("canary"), "{refused}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let env = TestEnv::new();
    let (target, _) = start(&env, 0).await;
    let elsewhere = format!("{}/fleet?list-type=2", target.url());
    let server = Server::start(&env.authority, move |_, _| redirect(&elsewhere)).await;
    let access = env.access_with(&[("accessKey", "id"), ("secretKey", "canary")]);
    let refused = message(fetch(&env.packages(), &bucket(&server), &access, &[]).await);
    assert!(refused.starts_with("SourceUnavailable") && refused.contains("HTTP 302"), "{refused}");
    assert!(target.requests().is_empty(), "a signature is only sent to the endpoint");
}
