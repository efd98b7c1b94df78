//! Pings, which find connections whose other side is gone.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use h2::{Ping, PingPong};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{sleep, timeout},
};

use super::{client::CloseReason, settings::Settings};

/// A socket that records that bytes have arrived.
///
/// On a slow link the answer to a ping can queue behind data for longer than its timeout; the data prove as well that the
/// other side is alive.
pub(super) struct Monitored<T> {
    io: T,
    received: Arc<AtomicBool>,
}

impl<T> Monitored<T> {
    pub fn new(io: T) -> (Self, Arc<AtomicBool>) {
        let received = Arc::new(AtomicBool::new(false));
        (Self { io, received: received.clone() }, received)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Monitored<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.received.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Monitored<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Pings until the other side is dead. The connection has to be polled at the same time.
pub(super) async fn keep_alive(
    mut pings: PingPong,
    received: Arc<AtomicBool>,
    settings: &Settings,
) -> CloseReason {
    loop {
        sleep(settings.ping_interval).await;
        received.store(false, Ordering::Relaxed);
        let mut pong = pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(settings.ping_timeout, &mut pong).await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => return CloseReason::Lost(error.to_string()),
                Err(_) if received.swap(false, Ordering::Relaxed) => {}
                Err(_) => return CloseReason::PingTimeout,
            }
        }
    }
}
