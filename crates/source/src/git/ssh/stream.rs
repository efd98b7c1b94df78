//! A connection that ends at a deadline.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};

/// A connection that fails from a deadline on. The ssh library serves it in a task of its own, which must not outlive the
/// fetch by more than that, whatever the server sends.
pub(super) struct ExpiringStream {
    stream: TcpStream,
    timer: Pin<Box<Sleep>>,
}

impl ExpiringStream {
    pub fn new(stream: TcpStream, deadline: Instant) -> Self {
        Self { stream, timer: Box::pin(sleep_until(deadline)) }
    }

    /// Returns the connection, or an error from the deadline on.
    fn live(self: Pin<&mut Self>, context: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        let Self { stream, timer } = self.get_mut();
        if timer.is_elapsed() || timer.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(stream))
    }
}

impl AsyncRead for ExpiringStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.live(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for ExpiringStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.live(context)?.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.live(context)?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
