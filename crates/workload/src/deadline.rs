//! Limits how long a Kubernetes client waits for a response.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use chandler_telemetry::is_watch;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Either, combinators::MapErr};
use tower::{BoxError, Layer, Service};
use tower_http::timeout::{DeadlineBody, TimeoutBody, TimeoutError};

/// The server has not answered in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no response within {0:?}")]
struct NoResponse(Duration);

/// After this time, a watch that has sent nothing is opened again. API servers send a bookmark every minute, so it was
/// probably dropped somewhere on its way.
pub const WATCH_SILENCE: Duration = Duration::from_secs(75);

/// A layer that fails requests whose response does not arrive in time, and ends watches that send nothing.
#[derive(Clone, Copy, Debug)]
pub struct ResponseDeadlines {
    /// Limits how long a response takes: of a watch the headers, of other requests the whole response.
    pub response: Duration,
    /// Limits how long a watch sends nothing.
    pub watch_silence: Duration,
}

impl<S> Layer<S> for ResponseDeadlines {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService { deadlines: *self, inner }
    }
}

/// A body that ends when it sends nothing for too long.
type WatchBody<B> = MapErr<TimeoutBody<B>, fn(BoxError) -> BoxError>;

/// Limits the silence of a watch. After it, the watch ends with [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof), and kube
/// continues it where it has ended.
fn limit_silence<B: Body<Error: Into<BoxError>>>(limit: Duration, body: B) -> WatchBody<B> {
    TimeoutBody::new(limit, body).map_err(|error| {
        if error.is::<TimeoutError>() {
            std::io::Error::new(std::io::ErrorKind::UnexpectedEof, error).into()
        } else {
            error
        }
    })
}

/// A service whose responses must arrive in time.
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    deadlines: ResponseDeadlines,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = BoxError>,
    S::Future: Send + 'static,
    A: Body,
    A::Error: Into<BoxError>,
{
    type Response = Response<Either<WatchBody<A>, DeadlineBody<A>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let ResponseDeadlines { response: limit, watch_silence } = self.deadlines;
        let response = tokio::time::timeout(limit, self.inner.call(request));
        async move {
            let expired = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, NoResponse(limit));
            let response = response.await.map_err(expired)??;
            Ok(response.map(|body| {
                if is_watch {
                    Either::Left(limit_silence(watch_silence, body))
                } else {
                    Either::Right(DeadlineBody::new(limit, body))
                }
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
    const DEADLINES: ResponseDeadlines =
        ResponseDeadlines { response: LIMIT, watch_silence: LIMIT.saturating_mul(5) };

    type Silence = stream::Pending<Result<Frame<Bytes>, Infallible>>;

    fn request(uri: &str) -> Request<()> {
        Request::builder().uri(uri).body(()).unwrap()
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let silent =
            service_fn(|_: Request<()>| pending::<Result<Response<StreamBody<Silence>>, BoxError>>());
        for uri in ["/api/v1/secrets", "/api/v1/secrets?watch=true"] {
            let answer = DEADLINES.layer(silent).oneshot(request(uri)).await;
            assert_eq!(answer.err().unwrap().to_string(), "no response within 20ms", "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_must_be_complete_in_time_and_a_watch_must_not_be_silent_for_long() {
        let stalls = service_fn(|_: Request<()>| {
            let silence: Silence = stream::pending();
            ready(Ok::<_, BoxError>(Response::new(StreamBody::new(silence))))
        });
        let answer = async |uri| DEADLINES.layer(stalls).oneshot(request(uri)).await.unwrap();
        let list = answer("/api/v1/secrets").await;
        assert!(list.into_body().collect().await.is_err());
        let watch = answer("/api/v1/secrets?labelSelector=a&watch=true").await;
        let mut reading = Box::pin(watch.into_body().collect());
        assert!(tokio::time::timeout(LIMIT * 2, &mut reading).await.is_err(), "the watch stays open");
        let ended = reading.await.unwrap_err().downcast::<std::io::Error>().unwrap();
        assert_eq!(ended.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
