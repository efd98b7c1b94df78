//! Where a pump writes bytes to.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use h2::{Reason, SendStream};
use tokio::io::AsyncWrite;

use super::PumpError;
use crate::budget::CountedBytes;

pub(super) trait Sink {
    /// Takes the first bytes, and returns how many.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut CountedBytes,
    ) -> Poll<Result<usize, PumpError>>;

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>>;

    /// Passes the end on.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>>;

    /// Returns an error if the sink is known to be closed, and has the task woken when it closes.
    fn check(&mut self, cx: &mut Context<'_>) -> Result<(), PumpError>;

    fn abort(&mut self);
}

/// The writable half of a socket.
pub(super) struct SocketSink<W>(pub W);

impl<W: AsyncWrite + Unpin> Sink for SocketSink<W> {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut CountedBytes,
    ) -> Poll<Result<usize, PumpError>> {
        if !bytes.has_remaining() {
            return Poll::Ready(Ok(0));
        }
        let written =
            ready!(Pin::new(&mut self.0).poll_write(cx, bytes.chunk())).map_err(PumpError::Socket)?;
        if written == 0 {
            return Poll::Ready(Err(PumpError::Socket(io::ErrorKind::WriteZero.into())));
        }
        bytes.advance(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>> {
        Pin::new(&mut self.0).poll_flush(cx).map_err(PumpError::Socket)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll_shutdown(cx)) {
            // The other side has closed both directions already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result.map_err(PumpError::Socket),
        })
    }

    fn check(&mut self, _: &mut Context<'_>) -> Result<(), PumpError> {
        Ok(())
    }

    fn abort(&mut self) {}
}

/// The sending half of a stream.
pub(super) struct StreamSink(pub SendStream<CountedBytes>);

impl Sink for StreamSink {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut CountedBytes,
    ) -> Poll<Result<usize, PumpError>> {
        let length = bytes.remaining();
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        self.0.reserve_capacity(length);
        let mut capacity = self.0.capacity();
        while capacity == 0 {
            capacity = match ready!(self.0.poll_capacity(cx)) {
                Some(capacity) => capacity?,
                None => return Poll::Ready(Err(self.closed(cx, Reason::STREAM_CLOSED.into()))),
            };
        }
        let count = capacity.min(length);
        match self.0.send_data(bytes.split_to(count), false) {
            Ok(()) => Poll::Ready(Ok(count)),
            Err(error) => Poll::Ready(Err(self.closed(cx, error))),
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PumpError>> {
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>> {
        let end = CountedBytes::uncounted(Bytes::new());
        Poll::Ready(self.0.send_data(end, true).map_err(|error| self.closed(cx, error)))
    }

    fn check(&mut self, cx: &mut Context<'_>) -> Result<(), PumpError> {
        match self.0.poll_reset(cx) {
            Poll::Ready(Ok(reason)) => Err(PumpError::Reset(reason)),
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn abort(&mut self) {
        self.0.send_reset(Reason::CANCEL);
    }
}

impl StreamSink {
    /// Returns why the stream cannot be written to: the other side's reason, if it has reset the stream.
    fn closed(&mut self, cx: &mut Context<'_>, error: h2::Error) -> PumpError {
        self.check(cx).err().unwrap_or_else(|| error.into())
    }
}
