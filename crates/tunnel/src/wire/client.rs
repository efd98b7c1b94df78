//! The side of a connection that opens streams: the hub towards agents, and towards other hubs.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{ResponseFuture, SendRequest},
};
use http::{Request, StatusCode};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    keep_alive::{Monitored, keep_alive},
    message::{BodyError, read_body, read_text},
    settings::Settings,
};
use crate::{budget::CountedBytes, stream::TunnelStream};

/// Deadline of the first bytes of HTTP/2.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Deadline of requests that carry messages, on both sides.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("the other side closed the connection")]
    Closed,
    #[error("the connection was closed on this side")]
    ClosedHere,
    #[error("the other side did not answer a ping")]
    PingTimeout,
    #[error("the open streams did not end in time")]
    DrainTimeout,
    #[error("the connection failed: {0}")]
    Lost(String),
}

/// Why a stream was not opened, or a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the connection has no room for another stream")]
    TooManyStreams,
    #[error("the connection is closed or being drained; use another one")]
    Closing,
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the answer was {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("the connection failed: {0}")]
    Failed(String),
}

impl OpenError {
    /// Returns whether another connection of the same tunnel may succeed.
    pub fn is_worth_another_connection(&self) -> bool {
        matches!(self, Self::TooManyStreams | Self::Closing | Self::Failed(_))
    }
}

impl From<h2::Error> for OpenError {
    fn from(error: h2::Error) -> Self {
        if error.is_go_away() || error.is_io() {
            Self::Closing
        } else if error.reason() == Some(Reason::REFUSED_STREAM) {
            Self::TooManyStreams
        } else {
            Self::Failed(error.to_string())
        }
    }
}

impl From<BodyError> for OpenError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Stream(error) => error.into(),
            BodyError::TooLarge { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<http::Error> for OpenError {
    fn from(error: http::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Opens streams; clones share the connection.
pub(super) type Requests = SendRequest<CountedBytes>;

/// A connection on which this side opens streams. A task drives it until it ends.
pub(super) struct ClientConnection {
    /// `None` once the connection is drained: HTTP/2 closes a connection without streams that cannot open any.
    requests: Mutex<Option<Requests>>,
    max_streams: usize,
    slots: Arc<Semaphore>,
    close: CancellationToken,
    /// Set before `closed` is canceled.
    reason: Arc<OnceLock<CloseReason>>,
    closed: CancellationToken,
}

impl ClientConnection {
    /// Starts the connection, and the task that drives it.
    pub async fn start<T>(io: T, settings: &Settings) -> Result<Self, OpenError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (io, received) = Monitored::new(io);
        let (requests, mut connection) = timeout(HANDSHAKE_TIMEOUT, settings.client().handshake(io))
            .await
            .map_err(|_| OpenError::Timeout(HANDSHAKE_TIMEOUT))??;
        let pings = connection.ping_pong();
        let close = CancellationToken::new();
        let (reason, closed) = (Arc::new(OnceLock::new()), CancellationToken::new());
        // Canceled also if the task is aborted together with the runtime.
        let (report, ended) = (reason.clone(), closed.clone().drop_guard());
        let (closing, ping_settings) = (close.clone(), settings.clone());
        tokio::spawn(async move {
            let pinging = async {
                match pings {
                    Some(pings) => keep_alive(pings, received, &ping_settings).await,
                    None => std::future::pending().await,
                }
            };
            let reason = tokio::select! {
                // By reference: the task would contain a moved connection twice.
                result = &mut connection => match result {
                    Ok(()) => CloseReason::Closed,
                    Err(error) => CloseReason::Lost(error.to_string()),
                },
                reason = pinging => reason,
                () = closing.cancelled() => CloseReason::ClosedHere,
            };
            drop(connection);
            tracing::debug!(%reason, "a tunnel connection has ended");
            report.get_or_init(|| reason);
            drop(ended);
        });
        let max_streams = settings.max_streams as usize;
        let slots = Arc::new(Semaphore::new(max_streams));
        Ok(Self { requests: Mutex::new(Some(requests)), max_streams, slots, close, reason, closed })
    }

    /// Returns whether streams can be opened: neither side has closed or drains the connection.
    pub fn is_usable(&self) -> bool {
        self.requests().is_ok()
    }

    fn requests(&self) -> Result<Requests, OpenError> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut requests = requests.ok_or(OpenError::Closing)?;
        let mut context = Context::from_waker(Waker::noop());
        match requests.poll_ready(&mut context) {
            Poll::Ready(Ok(())) if !self.closed.is_cancelled() => Ok(requests),
            _ => Err(OpenError::Closing),
        }
    }

    /// Returns how many streams are open.
    pub fn open_streams(&self) -> usize {
        self.max_streams.saturating_sub(self.slots.available_permits())
    }

    /// Opens a stream, if the other side accepts it before the deadline.
    pub async fn open(&self, request: Request<()>, deadline: Duration) -> Result<TunnelStream, OpenError> {
        let mut requests = self.requests()?;
        let permit = self.slots.clone().try_acquire_owned().map_err(|_| OpenError::TooManyStreams)?;
        let opening = async {
            let (response, send) = requests.send_request(request, false)?;
            let (head, recv) = response.await?.into_parts();
            if head.status == StatusCode::OK {
                return Ok(TunnelStream::new(send, recv, Some(permit)));
            }
            Err(OpenError::Refused { status: head.status.as_u16(), message: read_text(recv).await })
        };
        timeout(deadline, opening).await.map_err(|_| OpenError::Timeout(deadline))?
    }

    /// Sends a message, and returns the body of a successful answer.
    pub async fn exchange(
        &self,
        request: Request<()>,
        body: Bytes,
        max_answer: usize,
    ) -> Result<Bytes, OpenError> {
        exchange(self.requests()?, request, body, max_answer).await
    }

    /// Refuses new streams from now on. When the result is dropped and the open streams have ended, the connection closes.
    pub fn start_draining(&self) -> Option<Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) -> CloseReason {
        self.closed.cancelled().await;
        self.reason.get().cloned().unwrap_or(CloseReason::ClosedHere)
    }

    /// Closes the connection and all of its streams at once.
    pub fn close(&self) {
        self.close.cancel();
    }

    /// Refuses new streams, waits until the connection has ended, and closes it at the deadline.
    pub async fn close_when_drained(&self, deadline: Instant) -> CloseReason {
        drop(self.start_draining());
        if let Ok(reason) = timeout_at(deadline, self.closed()).await {
            return reason;
        }
        self.close();
        self.closed().await;
        CloseReason::DrainTimeout
    }
}

/// Sends a message, and returns the body of a successful answer.
pub(super) async fn exchange(
    mut requests: Requests,
    request: Request<()>,
    body: Bytes,
    max_answer: usize,
) -> Result<Bytes, OpenError> {
    let exchanging = async {
        let response = send_message(&mut requests, request, body)?;
        let (head, recv) = response.await?.into_parts();
        if head.status.is_success() {
            return Ok(read_body(recv, max_answer).await?);
        }
        Err(OpenError::Refused { status: head.status.as_u16(), message: read_text(recv).await })
    };
    timeout(REQUEST_TIMEOUT, exchanging).await.map_err(|_| OpenError::Timeout(REQUEST_TIMEOUT))?
}

fn send_message(
    requests: &mut Requests,
    request: Request<()>,
    body: Bytes,
) -> Result<ResponseFuture, OpenError> {
    let (response, mut send) = requests.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        send.send_data(CountedBytes::uncounted(body), true)?;
    }
    Ok(response)
}
