//! Limits how long a Kubernetes client waits for a response.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use chandler_telemetry::is_watch;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body_util::Either;
use tower::{BoxError, Layer, Service};
use tower_http::timeout::DeadlineBody;

/// The server has not answered in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no response within {0:?}")]
struct NoResponse(Duration);

/// A layer that fails requests whose response does not arrive in time: of a watch the headers, of other requests the whole
/// response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseDeadline(pub Duration);

impl<S> Layer<S> for ResponseDeadline {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService { limit: self.0, inner }
    }
}

/// A service whose responses must arrive in time.
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    limit: Duration,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = BoxError>,
    S::Future: Send + 'static,
    A: http_body::Body,
    A::Error: Into<BoxError>,
{
    type Response = Response<Either<A, DeadlineBody<A>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (limit, is_watch) = (self.limit, is_watch(request.uri()));
        let response = tokio::time::timeout(limit, self.inner.call(request));
        async move {
            let expired = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, NoResponse(limit));
            let response = response.await.map_err(expired)??;
            Ok(response.map(|body| {
                if is_watch { Either::Left(body) } else { Either::Right(DeadlineBody::new(limit, body)) }
            }))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        future::{pending, ready},
    };

    use bytes::Bytes;
    use futures::stream;
    use http_body::Frame;
    use http_body_util::{BodyExt as _, StreamBody};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    type Silence = stream::Pending<Result<Frame<Bytes>, Infallible>>;

    fn request(uri: &str) -> Request<()> {
        Request::builder().uri(uri).body(()).unwrap()
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let silent =
            service_fn(|_: Request<()>| pending::<Result<Response<StreamBody<Silence>>, BoxError>>());
        for uri in ["/api/v1/secrets", "/api/v1/secrets?watch=true"] {
            let answer = ResponseDeadline(LIMIT).layer(silent).oneshot(request(uri)).await;
            assert_eq!(answer.err().unwrap().to_string(), "no response within 20ms", "{uri}");
        }
    }

    #[tokio::test]
    async fn a_response_must_be_complete_in_time_unless_it_is_a_watch() {
        let stalls = service_fn(|_: Request<()>| {
            let silence: Silence = stream::pending();
            ready(Ok::<_, BoxError>(Response::new(StreamBody::new(silence))))
        });
        let answer = async |uri| ResponseDeadline(LIMIT).layer(stalls).oneshot(request(uri)).await.unwrap();
        let list = answer("/api/v1/secrets").await;
        assert!(list.into_body().collect().await.is_err());
        let watch = answer("/api/v1/secrets?labelSelector=a&watch=true").await;
        let read = tokio::time::timeout(LIMIT * 5, watch.into_body().collect()).await;
        assert!(read.is_err(), "the watch stays open");
    }
}
