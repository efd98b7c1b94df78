//! Opens a bucket with the protocol of its provider.

use std::sync::{Arc, Mutex, PoisonError};

use chandler_core::source::{Bucket, BucketProvider};
use object_store::{
    ObjectStore, RetryConfig, StaticCredentialProvider,
    aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder,
    gcp::{GcpCredential, GoogleCloudStorageBuilder},
};
use reqwest::Url;

use super::connector::Connector;
use crate::{Access, SourceError, access::BucketKeys, http::HttpClient};

/// A bucket to which requests can be sent.
pub(super) struct OpenBucket {
    pub store: Box<dyn ObjectStore>,
    pub url: String,
    /// The last request that failed. It says more than the errors of the protocol, which may repeat a response.
    failed: Arc<Mutex<Option<SourceError>>>,
}

impl OpenBucket {
    pub fn new(http: Arc<HttpClient>, bucket: &Bucket, access: &Access) -> Result<Self, SourceError> {
        let url = super::url(bucket);
        let endpoint = Url::parse(&bucket.endpoint)
            .map_err(|_| SourceError::InvalidUrl { url: "spec.bucket.endpoint".to_owned() })?;
        access.check_host(&endpoint)?;
        let failed = Arc::<Mutex<Option<SourceError>>>::default();
        let connector =
            Connector { http, endpoint: endpoint.clone(), access: access.clone(), failed: failed.clone() };
        let store = open(bucket, &endpoint, access.bucket_keys(), connector, &url)?;
        Ok(Self { store, url, failed })
    }

    /// Returns the error of the last request, or what the protocol reports.
    pub fn error(&self, error: &object_store::Error) -> SourceError {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.unwrap_or_else(|| {
            let reason = match error {
                object_store::Error::InvalidPath { .. } => {
                    "an object has a name that is not a path of a file"
                }
                object_store::Error::Precondition { .. } => {
                    "an object changed while it was read; this is retried"
                }
                _ => "the response is not that of an object store; check spec.bucket.provider and endpoint",
            };
            SourceError::Bucket { url: self.url.clone(), reason: reason.to_owned() }
        })
    }
}

/// Polls are retried anyway.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn open(
    bucket: &Bucket,
    endpoint: &Url,
    keys: Option<&BucketKeys>,
    connector: Connector,
    url: &str,
) -> Result<Box<dyn ObjectStore>, SourceError> {
    // The text of an error may contain the key.
    let invalid = |reason: &'static str| SourceError::InvalidCredentials { url: url.to_owned(), reason };
    let unusable = |_: object_store::Error| invalid("they are not keys of this provider");
    let store: Box<dyn ObjectStore> = match (bucket.provider, keys) {
        (BucketProvider::S3, keys @ (None | Some(BucketKeys::S3 { .. }))) => {
            let builder = AmazonS3Builder::new()
                .with_endpoint(endpoint.as_str())
                .with_bucket_name(&bucket.name)
                .with_region(bucket.region.as_deref().unwrap_or("us-east-1"))
                .with_retry(no_retries())
                .with_http_connector(connector);
            let builder = match keys {
                Some(BucketKeys::S3 { access_key, secret_key }) => {
                    builder.with_access_key_id(access_key).with_secret_access_key(secret_key)
                }
                _ => builder.with_skip_signature(true),
            };
            Box::new(builder.build().map_err(unusable)?)
        }
        (BucketProvider::Gcs, keys @ (None | Some(BucketKeys::Gcs(_)))) => {
            let builder = GoogleCloudStorageBuilder::new()
                .with_base_url(endpoint.as_str().trim_end_matches('/'))
                .with_bucket_name(&bucket.name)
                .with_retry(no_retries())
                .with_http_connector(connector);
            let builder = if let Some(BucketKeys::Gcs(service_account)) = keys {
                builder.with_service_account_key(service_account)
            } else {
                // Without credentials, the builder would look for those of the machine.
                let none = GcpCredential { bearer: String::new() };
                let none = Arc::new(StaticCredentialProvider::new(none));
                builder.with_credentials(none).with_skip_signature(true)
            };
            Box::new(builder.build().map_err(unusable)?)
        }
        (BucketProvider::Azure, keys @ (None | Some(BucketKeys::Azure { .. }))) => {
            let account = endpoint.host_str().and_then(|host| host.split('.').next()).unwrap_or_default();
            let builder = MicrosoftAzureBuilder::new()
                .with_account(account)
                .with_endpoint(endpoint.as_str().trim_end_matches('/').to_owned())
                .with_container_name(&bucket.name)
                .with_retry(no_retries())
                .with_http_connector(connector);
            let builder = match keys {
                Some(BucketKeys::Azure { account_key }) => builder.with_access_key(account_key),
                _ => builder.with_skip_signature(true),
            };
            Box::new(builder.build().map_err(unusable)?)
        }
        (BucketProvider::S3, _) => return Err(invalid("S3 needs accessKey and secretKey")),
        (BucketProvider::Gcs, _) => return Err(invalid("GCS needs serviceAccount, a key in JSON")),
        (BucketProvider::Azure, _) => return Err(invalid("Azure needs accountKey")),
    };
    Ok(store)
}
