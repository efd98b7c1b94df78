//! An HTTP client for untrusted servers: it only uses https and allowed addresses, limits size and time, and sends
//! credentials only to the host that they are for.

mod clients;
mod resolver;
mod tcp;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chandler_core::{
    addresses::{AddressPolicy, RefusedAddress, ServerCertificate},
    failure::{cause, root_cause},
    url_login::WithoutLogin,
};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION},
};
use tokio::time::Instant;

use self::clients::Clients;
use crate::{Access, SourceError, limits::Limits};

const MAX_REDIRECTS: usize = 5;

/// The HTTP client for all sources.
#[derive(Debug)]
pub(crate) struct HttpClient {
    policy: Arc<AddressPolicy>,
    proxies: Matcher,
    clients: Clients,
    pub limits: Limits,
}

pub(crate) struct HttpRequest<'a> {
    pub url: Url,
    /// Base URL of the repository or registry that the credentials are for.
    pub base_url: &'a Url,
    pub access: &'a Access,
    pub authorization: Option<HeaderValue>,
    pub headers: HeaderMap,
}

/// A response whose body is not read yet.
pub(crate) struct HttpResponse {
    pub url: Url,
    /// Whether the response is from the origin that the credentials are for.
    pub is_same_origin: bool,
    response: reqwest::Response,
    deadline: Deadline,
}

/// The end of the time that a request, or several of them, may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    pub fn at(self) -> Instant {
        self.at
    }

    /// Runs `work` until the deadline.
    pub async fn run<T>(self, url: &Url, work: impl Future<Output = T>) -> Result<T, SourceError> {
        let limit = self.limit;
        let ended = tokio::time::timeout_at(self.at, work).await;
        ended.map_err(|_| SourceError::Timeout { url: shown(url), limit })
    }
}

/// The body of a request.
enum RequestBody<'a> {
    None,
    Form(&'a [(String, String)]),
    Bytes(Vec<u8>),
    /// A body with another method.
    Any(Method, Vec<u8>),
}

impl HttpClient {
    pub fn new(policy: AddressPolicy, proxies: Matcher, limits: Limits) -> Self {
        let policy = Arc::new(policy);
        Self { clients: Clients::new(policy.clone(), limits), policy, proxies, limits }
    }

    /// Sends a GET request and follows redirects.
    pub async fn get(&self, request: HttpRequest<'_>) -> Result<HttpResponse, SourceError> {
        self.get_until(Deadline::after(self.limits.total_timeout), request).await
    }

    /// Does the same as [`HttpClient::get`], with another deadline.
    pub async fn get_until(
        &self,
        deadline: Deadline,
        request: HttpRequest<'_>,
    ) -> Result<HttpResponse, SourceError> {
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&request, url.clone(), RequestBody::None, deadline);
            let response = deadline.run(&request.url, response).await??;
            match redirect(&response)? {
                Some(next) => url = next,
                None => return Ok(response),
            }
        }
        Err(SourceError::TooManyRedirects { url: shown(&request.url), limit: MAX_REDIRECTS })
    }

    /// Posts a form. Redirects are not followed, because the form may contain credentials for this URL.
    pub async fn post(
        &self,
        request: HttpRequest<'_>,
        form: &[(String, String)],
    ) -> Result<HttpResponse, SourceError> {
        let deadline = Deadline::after(self.limits.total_timeout);
        let response = self.send(&request, request.url.clone(), RequestBody::Form(form), deadline);
        deadline.run(&request.url, response).await?
    }

    /// Posts a body. Redirects are not followed.
    pub async fn post_body_until(
        &self,
        deadline: Deadline,
        request: HttpRequest<'_>,
        body: Vec<u8>,
    ) -> Result<HttpResponse, SourceError> {
        let response = self.send(&request, request.url.clone(), RequestBody::Bytes(body), deadline);
        deadline.run(&request.url, response).await?
    }

    /// Sends a request with any method. Redirects are not followed, because its headers may contain a signature for this URL.
    pub async fn execute(
        &self,
        method: Method,
        request: HttpRequest<'_>,
        body: Vec<u8>,
    ) -> Result<HttpResponse, SourceError> {
        let deadline = Deadline::after(self.limits.total_timeout);
        let response = self.send(&request, request.url.clone(), RequestBody::Any(method, body), deadline);
        deadline.run(&request.url, response).await?
    }

    async fn send(
        &self,
        request: &HttpRequest<'_>,
        url: Url,
        body: RequestBody<'_>,
        deadline: Deadline,
    ) -> Result<HttpResponse, SourceError> {
        let proxy = url.as_str().parse().ok().and_then(|uri| self.proxies.intercept(&uri));
        self.check(&url, request.access, proxy.is_some())?;
        let is_same_origin = url.origin() == request.base_url.origin();
        if is_same_origin {
            request.access.check_host(&url)?;
        }
        let client = self.clients.get(request.access, is_same_origin, proxy.as_ref(), request.base_url)?;
        let builder = match body {
            RequestBody::None => client.get(url.clone()),
            RequestBody::Form(form) => client.post(url.clone()).form(form),
            RequestBody::Bytes(bytes) => client.post(url.clone()).body(bytes),
            RequestBody::Any(method, bytes) => client.request(method, url.clone()).body(bytes),
        };
        let mut builder = builder.headers(request.headers.clone());
        if let Some(authorization) = request.authorization.as_ref().filter(|_| is_same_origin) {
            builder = builder.header(AUTHORIZATION, authorization.clone());
        }
        let response = builder.send().await.map_err(|error| failed(&url, &error))?;
        Ok(HttpResponse { url, is_same_origin, response, deadline })
    }

    /// Checks the URL. Host names are checked when the connection resolves them, except behind a proxy, which resolves them
    /// itself.
    fn check(&self, url: &Url, access: &Access, proxied: bool) -> Result<(), SourceError> {
        let host = url.host_str().unwrap_or_default();
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if url.scheme() != "https" || host.is_empty() || has_credentials {
            return Err(SourceError::InvalidUrl { url: redacted(url) });
        }
        let certificate = ServerCertificate::skipped(access.insecure_skip_tls_verify);
        let checked = if proxied {
            self.policy.check_proxied_host(host, certificate)
        } else {
            self.policy.check_host(host, certificate)
        };
        checked.map_err(|refused| SourceError::AddressRefused { url: shown(url), refused })
    }
}

impl HttpResponse {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub fn header(&self, name: impl reqwest::header::AsHeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns an error unless the status is a success.
    pub fn error_for_status(self) -> Result<Self, SourceError> {
        let status = self.status();
        if status.is_success() {
            return Ok(self);
        }
        Err(SourceError::Status { url: shown(&self.url), status: status.as_u16(), hint: hint(status) })
    }

    /// Calls `consume` with each chunk of the body. Fails if the body is larger than `limit` bytes.
    pub async fn for_each_chunk(
        mut self,
        limit: u64,
        mut consume: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        if self.response.content_length().is_some_and(|length| length > limit) {
            return Err(self.too_large(limit));
        }
        let mut received = 0;
        while let Some(chunk) = self.chunk().await? {
            received += chunk.len() as u64;
            if received > limit {
                return Err(self.too_large(limit));
            }
            consume(&chunk)?;
        }
        Ok(())
    }

    /// Returns the next chunk of the body. `None` means that the body has ended.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let Self { url, response, deadline, .. } = self;
        let chunk = deadline.run(url, response.chunk()).await?;
        chunk.map_err(|error| failed(url, &error))
    }

    fn too_large(&self, limit: u64) -> SourceError {
        SourceError::TooLarge { url: shown(&self.url), limit }
    }

    /// Returns the whole body. Fails if it is larger than `limit` bytes.
    pub async fn bytes(self, limit: u64) -> Result<Vec<u8>, SourceError> {
        let mut body = Vec::new();
        self.for_each_chunk(limit, |chunk| {
            body.extend_from_slice(chunk);
            Ok(())
        })
        .await?;
        Ok(body)
    }
}

fn redirect(response: &HttpResponse) -> Result<Option<Url>, SourceError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(target) = response.header(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let next = response.url.join(target).map_err(|_| SourceError::invalid_url(target))?;
    Ok(Some(next))
}

fn failed(url: &Url, error: &reqwest::Error) -> SourceError {
    if let Some(refused) = cause::<RefusedAddress>(error) {
        return SourceError::AddressRefused { url: shown(url), refused: refused.clone() };
    }
    SourceError::RequestFailed { url: shown(url), reason: root_cause(error) }
}

/// Returns the URL for messages, without its query: registries redirect to URLs whose query is signed, and everybody who has
/// such a URL may download from it.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    redacted(&url)
}

/// Returns the URL without user name and password.
pub(crate) fn redacted(url: &Url) -> String {
    WithoutLogin(url.as_str()).to_string()
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "check the credentials that the object refers to",
        404 | 410 => "not found; check the URL of the repository, the chart and the version",
        407 => "the proxy requires credentials; set them in HTTPS_PROXY of the manager",
        429 => "too many requests; Chandler retries later",
        500..=599 => "the server has an error; Chandler retries later",
        _ => "unexpected status for a repository; check its URL",
    }
}
