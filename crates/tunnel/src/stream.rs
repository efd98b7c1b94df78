//! One stream of an HTTP/2 connection that carries the bytes of one TCP connection.

use std::fmt;

use h2::{Reason, RecvStream, SendStream};
use tokio::sync::OwnedSemaphorePermit;

use crate::budget::CountedBytes;

/// An open stream, in both directions. Dropping it resets the stream.
pub struct TunnelStream {
    pub(crate) send: SendStream<CountedBytes>,
    pub(crate) recv: RecvStream,
    /// Counts the stream against the limit of its connection.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl TunnelStream {
    pub(crate) fn new(
        send: SendStream<CountedBytes>,
        recv: RecvStream,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { send, recv, permit }
    }

    /// Resets the stream, so that the other side sees an error instead of an end.
    pub fn reset(mut self) {
        self.send.send_reset(Reason::CANCEL);
    }
}

impl fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelStream").field("id", &self.recv.stream_id()).finish_non_exhaustive()
    }
}
