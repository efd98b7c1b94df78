//! Where a pump takes bytes from.

use std::{
    cell::Cell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use tokio::io::{AsyncRead, ReadBuf};

use super::PumpError;
use crate::budget::Budget;

/// How many bytes are read from a socket at once.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// Every pump of a thread reads into this buffer, so that an idle pump holds none.
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

pub(super) trait Source {
    /// Whether bytes arrive, up to a window, even if the pump takes none. A pump takes those at once, to count them.
    const RECEIVES_UNASKED: bool;

    /// Returns the next bytes, or `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, PumpError>>;

    /// Is called when bytes have been written on.
    fn release(&mut self, count: usize);
}

/// The readable half of a socket. It is not read while the budget is exhausted.
pub(super) struct SocketSource<R> {
    socket: R,
    budget: Arc<Budget>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<R> SocketSource<R> {
    pub fn new(socket: R, budget: Arc<Budget>) -> Self {
        Self { socket, budget, waiting: None }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.budget.is_exhausted() {
            let budget = self.budget.clone();
            let waiting =
                self.waiting.get_or_insert_with(|| Box::pin(async move { budget.wait_for_room().await }));
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        self.waiting = None;
        Poll::Ready(())
    }
}

impl<R: AsyncRead + Unpin> Source for SocketSource<R> {
    const RECEIVES_UNASKED: bool = false;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, PumpError>> {
        ready!(self.poll_room(cx));
        let mut buffer = READ_BUFFER.take();
        buffer.resize(READ_BYTES, 0);
        let mut unfilled = ReadBuf::new(&mut buffer);
        let read = Pin::new(&mut self.socket)
            .poll_read(cx, &mut unfilled)
            .map_ok(|()| Bytes::copy_from_slice(unfilled.filled()));
        READ_BUFFER.set(buffer);
        let bytes = ready!(read).map_err(PumpError::Socket)?;
        Poll::Ready(Ok(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    fn release(&mut self, _: usize) {}
}

/// The receiving half of a stream.
pub(super) struct StreamSource(pub RecvStream);

impl Source for StreamSource {
    const RECEIVES_UNASKED: bool = true;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, PumpError>> {
        Poll::Ready(match ready!(self.0.poll_data(cx)) {
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(error)) => Err(error.into()),
            None => Ok(None),
        })
    }

    fn release(&mut self, count: usize) {
        // It fails only if the stream has been closed in the meantime, and then there is no window to open.
        let _ = self.0.flow_control().release_capacity(count);
    }
}

impl From<h2::Error> for PumpError {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_reset() => Self::Reset(reason),
            _ => Self::Tunnel(error),
        }
    }
}
