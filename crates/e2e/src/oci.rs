//! Artifacts of any type in a registry.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use chandler_sandbox::registry::{CREDENTIALS, Registry};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::https;

/// Pushes an artifact with one layer. Returns the digest of its manifest.
pub async fn push(registry: &Registry, name: &str, tag: &str, artifact_type: &str, content: &[u8]) -> Digest {
    let client = https::client(&format!("https://{}", registry.host()), registry.ca_pem());
    let empty = b"{}".as_slice();
    for blob in [content, empty] {
        upload(&client, name, blob).await;
    }
    let descriptor = |media_type: &str, blob: &[u8]| -> Value {
        json!({"mediaType": media_type, "digest": Digest::of(blob).to_string(), "size": blob.len()})
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": artifact_type,
        "config": descriptor("application/vnd.oci.empty.v1+json", empty),
        "layers": [descriptor(artifact_type, content)],
    })
    .to_string();
    let request = http::Request::put(format!("/v2/charts/{name}/manifests/{tag}"))
        .header("content-type", "application/vnd.oci.image.manifest.v1+json")
        .body(Body::from(manifest.clone().into_bytes()))
        .unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 201);
    Digest::of(&manifest)
}

async fn upload(client: &Client, name: &str, blob: &[u8]) {
    let request =
        http::Request::post(format!("/v2/charts/{name}/blobs/uploads/")).body(Body::empty()).unwrap();
    let upload = client.send(request).await.unwrap();
    let location = upload.headers()["location"].to_str().unwrap().to_owned();
    let path = location.parse::<http::Uri>().unwrap().path_and_query().unwrap().to_string();
    let separator = if path.contains('?') { '&' } else { '?' };
    let put = http::Request::put(format!("{path}{separator}digest={}", Digest::of(blob)))
        .header("content-type", "application/octet-stream")
        .body(Body::from(blob.to_vec()))
        .unwrap();
    assert_eq!(client.send(put).await.unwrap().status(), 201);
}

/// Pulls the manifest or blob at a path such as `team/chandler/manifests/v1`, from a registry with or without authentication.
pub async fn pull(registry: &Registry, path: &str) -> Vec<u8> {
    let client = https::client(&format!("https://{}", registry.host()), registry.ca_pem());
    let (user, password) = CREDENTIALS;
    let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
    let request = http::Request::get(format!("/v2/{path}"))
        .header("accept", "application/vnd.oci.image.manifest.v1+json, application/octet-stream")
        .header("authorization", format!("Basic {login}"))
        .body(Body::empty())
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.into_body().collect_bytes().await.unwrap().to_vec()
}
