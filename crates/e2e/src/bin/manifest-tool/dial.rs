//! Connections to a cluster, over which a cancelled operation can send nothing.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::lease::Lease;

/// Closes when an operation ends or the Lease expires: no connection of the operation sends anything afterwards.
#[derive(Clone, Debug)]
pub struct Gate {
    closed: Arc<Mutex<bool>>,
    lease: Lease,
}

impl Gate {
    pub fn new(lease: Lease) -> Self {
        Self { closed: Arc::default(), lease }
    }

    pub fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Writes while the gate is open. It does not close during the write.
    fn write<T>(&self, write: impl FnOnce() -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed || self.lease.has_expired() {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        } else {
            write()
        }
    }
}

/// Opens connections to the server of a request, or to its proxy.
#[derive(Clone, Debug)]
pub struct Dialer {
    pub gate: Gate,
}

impl Dialer {
    async fn dial(self, server: Uri) -> io::Result<TokioIo<Stream>> {
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
        let inner = TcpStream::connect((host, server.port_u16().unwrap_or(443))).await?;
        inner.set_nodelay(true)?;
        Ok(TokioIo::new(Stream { inner, gate: self.gate }))
    }
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        Box::pin(self.clone().dial(server))
    }
}

/// A connection that sends only while its gate is open.
pub struct Stream {
    inner: TcpStream,
    gate: Gate,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gate = self.gate.clone();
        gate.write(|| Pin::new(&mut self.inner).poll_write(context, buffer))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.gate.clone();
        gate.write(|| Pin::new(&mut self.inner).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
