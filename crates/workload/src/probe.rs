//! Asks an API server whether it still answers.
//!
//! Every cluster that sends nothing is asked every few seconds, so a probe costs as little as possible: its request is
//! prepared once, and its connection belongs to the probe alone. The task that waits for the answer drives the connection
//! itself, which saves the pool, the timers and the task that a client would have for it, and all changes between tasks.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use chandler_core::failure::Failure;
use chandler_telemetry::RequestCounter;
use futures::future::BoxFuture;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use tower::{BoxError, Service, ServiceExt as _};

use crate::reach::unreachable;

/// What a probe reads: every authenticated user may.
pub const PATH: &str = "/version";

/// The maximum size of an answer whose connection is used again.
const MAX_ANSWER: usize = 64 << 10;

/// Why an API server has not answered.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("no connection")]
    Connect(#[source] BoxError),
    #[error("the request failed")]
    Request(#[from] hyper::Error),
    #[error("the API server has closed the connection")]
    Closed,
}

/// The bytes of a connection, with or without TLS and a proxy.
trait ByteStream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> ByteStream for T {}

type Connecting = BoxFuture<'static, Result<Box<dyn ByteStream>, BoxError>>;

/// Asks one API server. Its connection is closed when it is dropped.
pub struct Probe {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    request: Request<()>,
    requests: RequestCounter,
    /// The connection of the last answer.
    open: Option<Box<OpenConnection>>,
}

impl Probe {
    /// A probe that connects to `uri` with `connector`, and sends `request`, which contains the path, the host and the
    /// credentials.
    pub fn new<C>(connector: C, uri: Uri, request: Request<()>, requests: RequestCounter) -> Self
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
        C::Response: Read + Write + Send + Unpin + 'static,
    {
        let connect = move || -> Connecting {
            let stream = connector.clone().oneshot(uri.clone());
            Box::pin(async move {
                let stream = stream.await.map_err(Into::<BoxError>::into)?;
                Ok(Box::new(stream) as Box<dyn ByteStream>)
            })
        };
        Self { connect: Box::new(connect), request, requests, open: None }
    }

    /// Returns whether the connection of the last answer is still open, as far as this machine knows.
    pub fn is_connected(&mut self) -> bool {
        self.open.take_if(|open| open.has_ended());
        self.open.is_some()
    }

    /// Waits for an answer. Any answer counts, even a refusal. The caller limits how long it may take.
    pub async fn answer(&mut self) -> Result<(), Failure> {
        let answer = self.ask().await;
        self.requests.count_get(answer.as_ref().ok().map(StatusCode::as_u16));
        answer.map(|_| ()).map_err(|error| unreachable(&error))
    }

    async fn ask(&mut self) -> Result<StatusCode, NoAnswer> {
        // If this is canceled, the connection is not kept: the next probe must not wait for the answer to this one.
        if let Some(open) = self.open.take()
            && let Ok(status) = self.ask_over(open).await
        {
            return Ok(status);
        }
        // The API server may have closed the connection since the last answer.
        let stream = (self.connect)().await.map_err(NoAnswer::Connect)?;
        let open = OpenConnection::over(stream).await?;
        self.ask_over(Box::new(open)).await
    }

    /// Asks, and keeps the connection if it was answered.
    async fn ask_over(&mut self, mut open: Box<OpenConnection>) -> Result<StatusCode, NoAnswer> {
        let request = self.request.clone().map(|()| Empty::new());
        let status = open.send(request).await?;
        self.open = open.is_usable().then_some(open);
        Ok(status)
    }
}

/// An open connection. It is driven while a request is sent and answered, and to learn whether it has ended.
struct OpenConnection {
    sender: SendRequest<Empty<Bytes>>,
    driver: Driver,
    /// Whether the last response was read completely.
    is_drained: bool,
}

impl OpenConnection {
    async fn over(stream: Box<dyn ByteStream>) -> Result<Self, NoAnswer> {
        let (sender, connection) = http1::handshake(stream).await?;
        Ok(Self { sender, driver: Driver { connection, has_ended: false }, is_drained: true })
    }

    /// Sends a request, and reads the response, so that the connection can be used again.
    async fn send(&mut self, request: Request<Empty<Bytes>>) -> Result<StatusCode, NoAnswer> {
        let Self { sender, driver, is_drained } = self;
        driver.run(sender.ready()).await?;
        let response = driver.run(sender.send_request(request)).await?;
        let status = response.status();
        *is_drained = driver.run(drain(response.into_body())).await?;
        Ok(status)
    }

    /// Returns whether the connection has ended. Nothing has to wake up for it: it is driven again by the next request.
    fn has_ended(&mut self) -> bool {
        self.driver.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn is_usable(&self) -> bool {
        self.is_drained && !self.driver.has_ended && !self.sender.is_closed()
    }
}

/// Drives a connection.
struct Driver {
    connection: http1::Connection<Box<dyn ByteStream>, Empty<Bytes>>,
    has_ended: bool,
}

impl Driver {
    /// Drives the connection until `work`, which depends on it, has ended.
    async fn run<T>(&mut self, work: impl Future<Output = hyper::Result<T>>) -> Result<T, NoAnswer> {
        let mut work = pin!(work);
        poll_fn(|context| {
            let connection = self.poll(context);
            match (work.as_mut().poll(context), connection) {
                (Poll::Ready(done), _) => Poll::Ready(done.map_err(NoAnswer::Request)),
                (Poll::Pending, Poll::Ready(Ok(()))) => Poll::Ready(Err(NoAnswer::Closed)),
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(NoAnswer::Request(error))),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }

    /// Drives the connection. It is ready when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        let connection = Pin::new(&mut self.connection).poll(context);
        self.has_ended = connection.is_ready();
        connection
    }
}

/// Reads a body to its end, and keeps nothing of it. Returns `false` if it is too large.
async fn drain(mut body: Incoming) -> hyper::Result<bool> {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        read += frame?.data_ref().map_or(0, Bytes::len);
        if read > MAX_ANSWER {
            return Ok(false);
        }
    }
    Ok(true)
}
