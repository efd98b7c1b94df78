//! The link between the site and the hub: a relay for TCP connections with the rate and the delay of a network.
//!
//! The rate is that of the link: all connections share it, direct ones and those of the tunnel. The kernel's own shaping
//! (netem) is not available everywhere.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use chandler_sandbox::netns::{self, NetworkNamespace};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::network::{WAN_TO_HUB, WAN_TO_SITE, listen};

const CHUNK: usize = 16 << 10;
/// More chunks than the link holds, so that the sender waits for the rate and not for this limit.
const IN_FLIGHT: usize = 256;
/// Timers have a resolution of 1 ms. Data may leave this much early, so that late timers do not lower the rate.
const BURST: Duration = Duration::from_millis(4);
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// The rate and the delay of the link in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub bytes_per_second: u64,
    /// Half of the round trip.
    pub delay: Duration,
}

impl Shape {
    pub fn new(megabits_per_second: u32, round_trip: Duration) -> Self {
        Self { bytes_per_second: u64::from(megabits_per_second) * 1_000_000 / 8, delay: round_trip / 2 }
    }
}

/// The faults of the link. Connections are numbered in their order.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Connections up to this number are reset.
    reset: u64,
    /// The data of connections up to this number is lost, and neither side gets an error.
    dropped: u64,
}

/// The link. It ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    faults: watch::Sender<Faults>,
    newest: watch::Receiver<u64>,
    /// Where an agent at the site reaches the hub.
    pub hub: SocketAddr,
    /// Where a client beside the hub reaches the target at the site without the tunnel.
    pub target: SocketAddr,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Link {
    /// Starts the link in the namespace `wan`. `hub` and `target` are the addresses behind it.
    pub async fn start(
        wan: &NetworkNamespace,
        shape: Shape,
        hub: SocketAddr,
        target: SocketAddr,
    ) -> Result<Self> {
        let (faults, seen) = watch::channel(Faults::default());
        let (numbers, newest) = watch::channel(0);
        let from_site = listen(wan, (WAN_TO_SITE, 0)).await?;
        let from_hub = listen(wan, (WAN_TO_HUB, 0)).await?;
        let (hub_leg, target_leg) = (from_site.local_addr()?, from_hub.local_addr()?);
        let (up, down) = (Arc::new(Direction::new(shape)), Arc::new(Direction::new(shape)));
        let namespace: Arc<str> = wan.name().into();
        let to_hub = Route { namespace: namespace.clone(), to: hub, forth: up.clone(), back: down.clone() };
        let to_target = Route { namespace, to: target, forth: down, back: up };
        let shared = Shared { numbers: Arc::new(numbers), faults: seen };
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(accept(from_site, to_hub, shared.clone()))),
            AbortOnDropHandle::new(tokio::spawn(accept(from_hub, to_target, shared))),
        ];
        Ok(Self { faults, newest, hub: hub_leg, target: target_leg, _tasks: tasks })
    }

    /// Resets all open connections.
    pub fn reset(&self) {
        let newest = *self.newest.borrow();
        self.faults.send_modify(|faults| faults.reset = newest);
    }

    /// Loses all data of the open connections from now on, without closing them, as a NAT does that has forgotten them. New
    /// connections work.
    pub fn forget_connections(&self) {
        let newest = *self.newest.borrow();
        self.faults.send_modify(|faults| faults.dropped = newest);
    }
}

/// One direction of the link, shared by all connections.
#[derive(Debug)]
struct Direction {
    shape: Shape,
    /// When the data that was accepted so far has left.
    free_at: Mutex<Instant>,
}

impl Direction {
    fn new(shape: Shape) -> Self {
        Self { shape, free_at: Mutex::new(Instant::now()) }
    }

    /// Returns when the given number of bytes has left.
    fn reserve(&self, bytes: usize) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = departure(*free_at, Instant::now(), bytes, self.shape.bytes_per_second);
        *free_at
    }
}

/// Returns when `bytes` have left a link that is free at `free_at`.
fn departure(free_at: Instant, now: Instant, bytes: usize, bytes_per_second: u64) -> Instant {
    let nanoseconds = bytes as u64 * 1_000_000_000 / bytes_per_second.max(1);
    free_at.max(now) + Duration::from_nanos(nanoseconds)
}

#[derive(Clone, Debug)]
struct Route {
    /// The namespace from which connections are opened.
    namespace: Arc<str>,
    to: SocketAddr,
    forth: Arc<Direction>,
    back: Arc<Direction>,
}

#[derive(Clone, Debug)]
struct Shared {
    numbers: Arc<watch::Sender<u64>>,
    faults: watch::Receiver<Faults>,
}

async fn accept(listener: TcpListener, route: Route, shared: Shared) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.numbers.send_modify(|number| *number += 1);
        let number = *shared.numbers.borrow();
        connections.spawn(serve(client, route.clone(), number, shared.faults.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut client: TcpStream, route: Route, number: u64, mut faults: watch::Receiver<Faults>) {
    // The handshake of TCP takes a round trip, too.
    sleep(route.forth.shape.delay * 2).await;
    let Ok(mut server) = netns::connect(&route.namespace, route.to, CONNECT_DEADLINE).await else {
        return reset(&client);
    };
    for stream in [&client, &server] {
        // It fails only if the connection is closed already.
        let _ = stream.set_nodelay(true);
    }
    let is_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let observed = faults.clone();
        let both = async {
            tokio::join!(
                carry(from_client, to_server, &route.forth, number, observed.clone()),
                carry(from_server, to_client, &route.back, number, observed.clone())
            );
        };
        let reset = async {
            let _ = faults.wait_for(|faults| faults.reset >= number).await;
        };
        tokio::select! {
            () = both => false,
            () = reset => true,
        }
    };
    if is_reset {
        reset(&client);
        reset(&server);
    }
}

/// Makes closing a connection send a reset.
fn reset(stream: &TcpStream) {
    // It fails only if the connection is closed already.
    let _ = stream.set_zero_linger();
}

/// Carries one direction of a connection to its end.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: &Direction,
    number: u64,
    faults: watch::Receiver<Faults>,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let reading = async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            // A connection that breaks ends for the other side, too.
            let read = from.read(&mut chunk).await.unwrap_or(0);
            chunk.truncate(read);
            let departs = direction.reserve(read);
            sleep_until(departs - BURST).await;
            if sender.send((departs + direction.shape.delay, chunk)).await.is_err() || read == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((arrives, chunk)) = receiver.recv().await {
            sleep_until(arrives).await;
            if faults.borrow().dropped >= number {
                continue;
            }
            let written = if chunk.is_empty() { to.shutdown().await } else { to.write_all(&chunk).await };
            if written.is_err() {
                return;
            }
        }
        if faults.borrow().dropped >= number {
            // The end of the other side is lost, too.
            std::future::pending::<()>().await;
        }
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_leaves_at_the_rate_of_the_link() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let rows = [
            // (free at, now, bytes, leaves at)
            (0, 0, 25_000, 1),
            (0, 10, 25_000, 11),
            (10, 0, 25_000, 11),
            (10, 0, 250_000, 20),
            (5, 5, 0, 5),
        ];
        let rate = Shape::new(200, Duration::from_millis(50)).bytes_per_second;
        for (free_at, now, bytes, expected) in rows {
            let left = departure(start + ms(free_at), start + ms(now), bytes, rate);
            assert_eq!(left - start, ms(expected), "{bytes} bytes, free at {free_at}, now {now}");
        }
    }
}
