//! Pumps carry bytes between sockets and streams, with backpressure from end to end.
//!
//! A pump opens the flow-control window of a stream only for bytes that it has written on, so a reader that stalls stops
//! its own stream and no other. An idle pump holds no buffer.

mod direction;
mod sink;
mod source;

use std::{
    fmt,
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::Reason;
use tokio::io::{AsyncRead, AsyncWrite};

use self::{
    direction::Direction,
    sink::{Sink, SocketSink, StreamSink},
    source::{SocketSource, Source, StreamSource},
};
use crate::{budget::Budget, stream::TunnelStream};

/// How long a reader may take nothing while the budget is exhausted, before its stream is reset.
pub const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Why a pump ended before both directions were complete.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    #[error("the connection failed: {0}")]
    Socket(#[source] io::Error),
    #[error("the other side of the tunnel has reset the stream: {0}")]
    Reset(Reason),
    #[error("the tunnel failed: {0}")]
    Tunnel(#[source] h2::Error),
    #[error("the reader was too slow while the memory for buffers was exhausted")]
    Stalled,
}

/// How many bytes pumps have carried.
#[derive(Debug, Default)]
pub struct Traffic {
    to_stream: AtomicU64,
    from_stream: AtomicU64,
}

impl Traffic {
    /// Returns how many bytes were sent into tunnels.
    pub fn to_stream(&self) -> u64 {
        self.to_stream.load(Ordering::Relaxed)
    }

    /// Returns how many bytes were received from tunnels.
    pub fn from_stream(&self) -> u64 {
        self.from_stream.load(Ordering::Relaxed)
    }
}

/// Creates pumps that share a budget and count their traffic.
#[derive(Clone)]
pub struct Pump {
    budget: Arc<Budget>,
    traffic: Arc<Traffic>,
}

impl Pump {
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, traffic: Arc::default() }
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Carries bytes between a stream and a socket until both directions have ended.
    ///
    /// `early` are bytes that were read from the socket before. The end of one direction is passed on, and the other
    /// direction continues. An error resets the stream and closes the socket, and so does dropping the future.
    pub async fn run<T>(&self, stream: TunnelStream, socket: T, early: Bytes) -> Result<(), PumpError>
    where
        T: AsyncRead + AsyncWrite,
    {
        let (read, write) = tokio::io::split(socket);
        let TunnelStream { send, recv, permit } = stream;
        let source = SocketSource::new(read, self.budget.clone());
        let mut to_stream = Direction::new(source, StreamSink(send), &self.budget);
        to_stream.push(early);
        let from_stream = Direction::new(StreamSource(recv), SocketSink(write), &self.budget);
        let result = run_both(
            to_stream,
            |count| add(&self.traffic.to_stream, count),
            from_stream,
            |count| add(&self.traffic.from_stream, count),
        )
        .await;
        drop(permit);
        result
    }

    /// Carries bytes between two streams of different connections: `agent` leads to the agent, `peer` to another hub.
    pub async fn forward(&self, agent: TunnelStream, peer: TunnelStream) -> Result<(), PumpError> {
        let TunnelStream { send, recv, permit } = agent;
        let permits = (permit, peer.permit);
        let to_agent = Direction::new(StreamSource(peer.recv), StreamSink(send), &self.budget);
        let to_peer = Direction::new(StreamSource(recv), StreamSink(peer.send), &self.budget);
        let result = run_both(
            to_agent,
            |count| add(&self.traffic.to_stream, count),
            to_peer,
            |count| add(&self.traffic.from_stream, count),
        )
        .await;
        drop(permits);
        result
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("budget", &self.budget).field("traffic", &self.traffic).finish()
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

/// Runs both directions in one task; an error of one aborts both.
async fn run_both<S1: Source, D1: Sink, S2: Source, D2: Sink>(
    mut first: Direction<S1, D1>,
    count_first: impl Fn(usize),
    mut second: Direction<S2, D2>,
    count_second: impl Fn(usize),
) -> Result<(), PumpError> {
    let result = poll_fn(|cx: &mut Context<'_>| {
        let one = first.poll(cx, &count_first)?;
        let other = second.poll(cx, &count_second)?;
        if one.is_ready() && other.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await;
    if result.is_err() {
        first.abort();
        second.abort();
    }
    result
}
