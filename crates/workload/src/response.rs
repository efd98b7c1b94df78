//! Limits what an API server may answer: the size of responses, and where they come from. A workload cluster may belong to
//! someone who wants to harm Chandler.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use chandler_telemetry::is_watch;
use futures::{FutureExt as _, future::BoxFuture};
use http::{
    Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Bytes;
use kube::core::Status;
use tower::{BoxError, Layer, Service};

use crate::status::failure_status;

/// Maximum size of a response. A page of a list that is larger is read again with fewer objects.
pub const MAX_RESPONSE: usize = 16 << 20;
/// Maximum size of an event of a watch. By default, API servers accept objects of at most 3 MiB.
pub const MAX_EVENT: usize = 4 << 20;
/// Maximum size of an error.
const MAX_ERROR: usize = 64 << 10;

/// A response is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableResponse {
    #[error(
        "it redirects to another address (HTTP {0}), which an API server never does; check the kubeconfig's server"
    )]
    Redirect(u16),
    #[error("a response has more than {} MiB; Chandler does not read the rest", .0 >> 20)]
    TooLarge(usize),
    #[error("an event of a watch has more than {} MiB; Chandler does not read the rest", .0 >> 20)]
    EventTooLarge(usize),
}

/// A layer that limits responses, refuses redirects, and passes nothing of an error on but the message of a Kubernetes status.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimits;

impl<S> Layer<S> for ResponseLimits {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> LimitedService<S> {
        LimitedService { inner }
    }
}

/// A service whose responses are limited.
#[derive(Clone, Debug)]
pub struct LimitedService<S> {
    inner: S,
}

impl<S, B, A> Service<Request<B>> for LimitedService<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = BoxError>,
    S::Future: Send + 'static,
    A: Body<Data = Bytes> + Send + Unpin + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Either<LimitedBody<A>, Full<Bytes>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let scope = if is_watch(request.uri()) { Scope::Event } else { Scope::Response };
        let response = self.inner.call(request);
        async move {
            let response = response.await?;
            let status = response.status();
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                return Err(UnusableResponse::Redirect(status.as_u16()).into());
            }
            if status.is_client_error() || status.is_server_error() {
                return Ok(error_response(status, LimitedBody::new(response.into_body(), Scope::Error)).await);
            }
            Ok(response.map(|body| Either::Left(LimitedBody::new(body, scope))))
        }
        .boxed()
    }
}

/// Replaces the body of an error: what is not a status of Kubernetes may come from another server, and must not reach the status of an object.
async fn error_response<A>(
    status: StatusCode,
    body: LimitedBody<A>,
) -> Response<Either<LimitedBody<A>, Full<Bytes>>>
where
    A: Body<Data = Bytes> + Unpin,
    A::Error: Into<BoxError>,
{
    let collected = body.collect().await.map(http_body_util::Collected::to_bytes);
    let mut reported = collected
        .ok()
        .and_then(|body| failure_status(&body))
        .unwrap_or_else(|| Status::failure("the response is not a status of Kubernetes", ""));
    reported.code = status.as_u16();
    // A status consists of texts and numbers, so this does not fail.
    let text = serde_json::to_vec(&reported).unwrap_or_default();
    let mut response = Response::new(Either::Right(Full::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The whole body.
    Response,
    Error,
    /// Each line of the body.
    Event,
}

impl Scope {
    fn check(self, bytes: usize) -> Result<(), UnusableResponse> {
        match self {
            Self::Response if bytes > MAX_RESPONSE => Err(UnusableResponse::TooLarge(MAX_RESPONSE)),
            Self::Error if bytes > MAX_ERROR => Err(UnusableResponse::TooLarge(MAX_ERROR)),
            Self::Event if bytes > MAX_EVENT => Err(UnusableResponse::EventTooLarge(MAX_EVENT)),
            _ => Ok(()),
        }
    }
}

/// A body of limited size.
#[derive(Debug)]
pub struct LimitedBody<B> {
    body: B,
    scope: Scope,
    /// The bytes that a reader has to keep: of the whole body, or of the line that is not complete yet.
    kept: usize,
}

impl<B> LimitedBody<B> {
    fn new(body: B, scope: Scope) -> Self {
        Self { body, scope, kept: 0 }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), UnusableResponse> {
        self.kept = match (self.scope, data.iter().rposition(|byte| *byte == b'\n')) {
            (Scope::Event, Some(end)) => data.len() - end - 1,
            _ => self.kept.saturating_add(data.len()),
        };
        self.scope.check(self.kept)
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(Into::<BoxError>::into)?;
            if let Some(data) = frame.data_ref() {
                self.count(data)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
