//! One direction of a pump.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::time::{Instant, Sleep, sleep};

use super::{PumpError, STALL_LIMIT, sink::Sink, source::Source};
use crate::budget::{Budget, CountedBytes};

/// How many steps a direction takes before it lets other tasks run.
const MAX_STEPS: usize = 64;
/// Bytes that wait are merged up to this size: the other side chooses the size of its frames, and each entry of the queue costs
/// memory that the budget does not count.
const MERGED_BYTES: usize = 1024;

/// Moves bytes from a source to a sink, and the end of the source too.
pub(super) struct Direction<S, D> {
    source: S,
    sink: D,
    budget: Arc<Budget>,
    /// Bytes that were taken from the source and not written yet.
    queue: VecDeque<CountedBytes>,
    progress: Progress,
    needs_flush: bool,
    /// Runs while bytes wait and the sink takes none.
    stall: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Reading,
    /// The source has ended; what is queued is still to be written.
    Draining,
    Finished,
}

impl<S: Source, D: Sink> Direction<S, D> {
    pub fn new(source: S, sink: D, budget: &Arc<Budget>) -> Self {
        Self {
            source,
            sink,
            budget: budget.clone(),
            queue: VecDeque::new(),
            progress: Progress::Reading,
            needs_flush: false,
            stall: None,
        }
    }

    /// Queues bytes as if the source had delivered them.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if let Some(last) = self.queue.back_mut()
            && last.remaining() + bytes.len() <= MERGED_BYTES
        {
            let merged = [last.chunk(), &bytes[..]].concat();
            *last = self.budget.count(Bytes::from(merged));
            return;
        }
        self.queue.push_back(self.budget.count(bytes));
    }

    /// Resets the sink, even if its end was passed on.
    pub fn abort(&mut self) {
        self.sink.abort();
    }

    /// Moves what can be moved. Is ready when the end has been passed on; `count` receives the bytes that were written.
    pub fn poll(&mut self, cx: &mut Context<'_>, count: &impl Fn(usize)) -> Poll<Result<(), PumpError>> {
        if self.progress == Progress::Finished {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..MAX_STEPS {
            let filled = self.fill(cx)?;
            let written = self.drain(cx, count)?;
            if self.progress == Progress::Finished {
                return Poll::Ready(Ok(()));
            }
            if !filled && !written {
                self.sink.check(cx)?;
                self.check_stall(cx)?;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes bytes from the source. Returns whether it had any, or has ended.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, PumpError> {
        let may_take = S::RECEIVES_UNASKED || self.queue.is_empty();
        if self.progress != Progress::Reading || !may_take {
            return Ok(false);
        }
        match self.source.poll_next(cx)? {
            Poll::Ready(Some(bytes)) => self.push(bytes),
            Poll::Ready(None) => self.progress = Progress::Draining,
            Poll::Pending => return Ok(false),
        }
        Ok(true)
    }

    /// Writes the first bytes of the queue, or the end. Returns whether the sink took them.
    fn drain(&mut self, cx: &mut Context<'_>, count: &impl Fn(usize)) -> Result<bool, PumpError> {
        if let Some(bytes) = self.queue.front_mut() {
            let Poll::Ready(written) = self.sink.poll_write(cx, bytes)? else {
                return Ok(false);
            };
            if !bytes.has_remaining() {
                self.queue.pop_front();
            }
            self.source.release(written);
            count(written);
            (self.needs_flush, self.stall) = (true, None);
            return Ok(true);
        }
        if self.queue.capacity() > 0 {
            // An idle pump holds no buffer.
            self.queue = VecDeque::new();
        }
        if self.progress == Progress::Draining {
            if self.sink.poll_finish(cx)?.is_ready() {
                self.progress = Progress::Finished;
            }
        } else if self.needs_flush {
            self.needs_flush = self.sink.poll_flush(cx)?.is_pending();
        }
        Ok(false)
    }

    fn check_stall(&mut self, cx: &mut Context<'_>) -> Result<(), PumpError> {
        if self.queue.is_empty() {
            self.stall = None;
            return Ok(());
        }
        if self.budget.is_overdrawn() {
            return Err(PumpError::Stalled);
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL_LIMIT)));
        while stall.as_mut().poll(cx).is_ready() {
            if self.budget.is_exhausted() {
                return Err(PumpError::Stalled);
            }
            stall.as_mut().reset(Instant::now() + STALL_LIMIT);
        }
        Ok(())
    }
}
