//! The hub's side of a connection to an agent.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use super::{
    ABOUT_PATH, CONFIG_PATH, DRAIN_PATH, HUB_HEADER, TARGET_AUTHORITY,
    client::{ClientConnection, CloseReason, OpenError, exchange},
    message::{connect, printable, request},
    settings::Settings,
};
use crate::{
    join_message::{About, HubList, MAX_ABOUT_BYTES},
    stream::TunnelStream,
};

/// The longest name or version of an agent that is shown, in characters.
const MAX_SHOWN_CHARS: usize = 253;

/// A connection to an agent. Clones share it; the connection ends when all clones and streams are dropped.
#[derive(Clone)]
pub struct AgentConnection {
    connection: Arc<ClientConnection>,
}

impl AgentConnection {
    /// Starts HTTP/2 on an established TLS connection, whose certificate the hub has verified.
    ///
    /// A task of the current runtime drives the connection until it ends.
    pub async fn start<T>(io: T, settings: &Settings) -> Result<Self, OpenError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = ClientConnection::start(io, settings).await?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Opens a stream to the API server behind the agent. The agent has dialed it when this returns.
    pub async fn open(&self, deadline: Duration) -> Result<TunnelStream, OpenError> {
        self.connection.open(connect(TARGET_AUTHORITY)?, deadline).await
    }

    /// Asks the agent about itself, and gives it the id of this replica.
    pub async fn about(&self, replica: &str) -> Result<About, OpenError> {
        let mut request = request(Method::GET, ABOUT_PATH)?;
        let replica = HeaderValue::try_from(replica).map_err(http::Error::from)?;
        request.headers_mut().insert(HUB_HEADER, replica);
        let answer = self.connection.exchange(request, Bytes::new(), MAX_ABOUT_BYTES).await?;
        let About { node, version } =
            serde_json::from_slice(&answer).map_err(|error| OpenError::Failed(error.to_string()))?;
        Ok(About { node: printable(&node, MAX_SHOWN_CHARS), version: printable(&version, MAX_SHOWN_CHARS) })
    }

    /// Sends a new list of hubs, which the agent stores.
    pub async fn send_config(&self, hubs: &HubList) -> Result<(), OpenError> {
        let json = serde_json::to_vec(hubs).map_err(|error| OpenError::Failed(error.to_string()))?;
        self.connection.exchange(request(Method::PUT, CONFIG_PATH)?, json.into(), 0).await.map(drop)
    }

    /// Returns whether streams can be opened.
    pub fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    /// Returns how many streams are open.
    pub fn open_streams(&self) -> usize {
        self.connection.open_streams()
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) -> CloseReason {
        self.connection.closed().await
    }

    /// Closes the connection and all of its streams at once, for an identity that is revoked.
    pub fn close(&self) {
        self.connection.close();
    }

    /// Drains the connection: the agent connects elsewhere, open streams may continue until the deadline.
    pub async fn shutdown(&self, deadline: Duration) -> CloseReason {
        let until = Instant::now() + deadline;
        if let (Some(requests), Ok(drain)) =
            (self.connection.start_draining(), request(Method::POST, DRAIN_PATH))
        {
            // Without an answer, the connection is drained without the agent's help.
            let _ = timeout_at(until, exchange(requests, drain, Bytes::new(), 0)).await;
        }
        self.connection.close_when_drained(until).await
    }
}

impl fmt::Debug for AgentConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConnection").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}
