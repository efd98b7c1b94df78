//! Sends the requests of `object_store` with the HTTP client for untrusted servers.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use object_store::{
    ClientOptions,
    client::{
        HttpClient as ObjectClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest as ObjectRequest,
        HttpResponse as ObjectResponse, HttpResponseBody, HttpService,
    },
};
use reqwest::Url;

use crate::{
    Access, SourceError,
    http::{HttpClient, HttpRequest},
};

/// The limit of the body of a response, as an extension of a request. Other bodies are limited like documents.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxBytes(pub u64);

/// Sends requests of one bucket.
#[derive(Clone)]
pub(super) struct Connector {
    pub http: Arc<HttpClient>,
    pub endpoint: Url,
    pub access: Access,
    /// The last request that failed.
    pub failed: Arc<Mutex<Option<SourceError>>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<ObjectClient> {
        Ok(ObjectClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: ObjectRequest) -> Result<ObjectResponse, HttpError> {
        self.send(request).await.map_err(|error| {
            let reported =
                HttpError::new(HttpErrorKind::Unknown, std::io::Error::other("the request failed"));
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            reported
        })
    }
}

impl Connector {
    async fn send(&self, request: ObjectRequest) -> Result<ObjectResponse, SourceError> {
        let (parts, body) = request.into_parts();
        let url: Url = parts
            .uri
            .to_string()
            .parse()
            .map_err(|_| SourceError::InvalidUrl { url: self.endpoint.to_string() })?;
        let body = body.as_bytes().map(|bytes| bytes.to_vec()).unwrap_or_default();
        let limit = parts.extensions.get::<MaxBytes>().map_or(self.http.limits.document_bytes, |max| max.0);
        let request = HttpRequest {
            url,
            base_url: &self.endpoint,
            access: &self.access,
            authorization: None,
            headers: parts.headers,
        };
        let response = self.http.execute(parts.method, request, body).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            return Err(SourceError::Status {
                url: response.url.to_string(),
                status: status.as_u16(),
                hint: hint(status.as_u16()),
            });
        }
        let content = response.bytes(limit).await?;
        let mut answer = ObjectResponse::new(HttpResponseBody::from(content));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        301 | 307 | 308 => "the bucket is elsewhere; check spec.bucket.endpoint and region",
        400 | 401 | 403 => "check the credentials that the Source refers to, and spec.bucket.region",
        404 => "not found; check spec.bucket",
        412 => "an object changed while it was read; this is retried",
        429 | 503 => "too many requests; Chandler retries later",
        _ => "unexpected status for an object store; check spec.bucket.endpoint",
    }
}
