//! Buckets of an S3 server: creates them, and uploads objects.

use chandler_sandbox::{
    assets::Binary,
    bucket_server::{BucketServer, CREDENTIALS, REGION},
    testing,
};
use http::{HeaderMap, HeaderValue, Request, header::CONTENT_LENGTH};
use kube::{Client, client::Body};
use object_store::{
    aws::{AwsAuthorizer, AwsCredential},
    client::HttpRequestBody,
};

use crate::{https, world::World};

/// Starts an S3 server for a test. Builds it if needed.
pub async fn start_server(world: &World) -> BucketServer {
    let program = testing::installer(Binary::Versitygw).await.unwrap();
    let home = world.dir.join("s3");
    BucketServer::start(&program, world.sandbox.authority(), &home).await.unwrap()
}

/// A bucket that a test writes.
pub struct Bucket {
    client: Client,
    url: String,
    name: String,
}

impl Bucket {
    /// Creates a bucket on the server.
    pub async fn create(server: &BucketServer, name: &str) -> Self {
        let client = https::client(server.url(), server.ca_pem());
        let bucket = Self { client, url: server.url().to_owned(), name: name.to_owned() };
        bucket.upload(&format!("/{name}"), &[]).await;
        bucket
    }

    /// Uploads an object, or replaces it.
    pub async fn put(&self, key: &str, content: &[u8]) {
        self.upload(&format!("/{}/{key}", self.name), content).await;
    }

    /// Sends a signed PUT request and fails the test unless it succeeds.
    async fn upload(&self, path: &str, content: &[u8]) {
        let mut request = Request::put(path).body(Body::from(content.to_vec())).unwrap();
        *request.headers_mut() = self.signature(path, content);
        let response = self.client.send(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect_bytes().await.unwrap();
        assert!(status.is_success(), "PUT {path}: {status}: {}", String::from_utf8_lossy(&body));
    }

    /// Returns the headers that sign a PUT request.
    fn signature(&self, path: &str, content: &[u8]) -> HeaderMap {
        let (key_id, secret_key) = (CREDENTIALS.0.to_owned(), CREDENTIALS.1.to_owned());
        let credential = AwsCredential { key_id, secret_key, token: None };
        let url = format!("{}{path}", self.url);
        let mut request = Request::put(url).body(HttpRequestBody::from(content.to_vec())).unwrap();
        AwsAuthorizer::new(&credential, "s3", REGION).try_authorize(&mut request, None).unwrap();
        let mut headers = std::mem::take(request.headers_mut());
        // S3 requires it, and it is not signed.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        headers
    }
}
