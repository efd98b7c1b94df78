//! Connections to the target, direct and through the hub, and what they carry.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use chandler_sandbox::netns;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::target::{ECHO, RECEIVE, SEND, Target};

/// Slow start and growing windows are not measured.
const WARM_UP: Duration = Duration::from_secs(2);
const CHUNK: usize = 64 << 10;
const MESSAGE: usize = 64;
/// How long a connection to the target, or a message on it, may take. Losses in a row delay it by seconds.
const DEADLINE: Duration = Duration::from_secs(20);
/// Another exchange is tried after this time, which limits how exactly the end of an outage is known.
const RETRY: Duration = Duration::from_millis(100);

/// A client beside the hub, and its way to the target.
#[derive(Clone, Debug)]
pub struct Client {
    /// The namespace in which it runs.
    pub namespace: String,
    pub way: Way,
}

/// A way to the target.
#[derive(Clone, Debug)]
pub enum Way {
    /// Through the link alone.
    Direct(SocketAddr),
    /// Through the hub's proxy, the link and the agent.
    Tunnel {
        proxy: SocketAddr,
        /// The endpoint of the cluster.
        authority: String,
        /// The value of `Proxy-Authorization`.
        authorization: String,
    },
}

/// The direction of the data, seen from the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the site to the hub, as the answers of an API server.
    Download,
    Upload,
}

impl Client {
    /// Opens a connection and sends the byte that selects what the target does.
    pub async fn open(&self, operation: u8) -> Result<TcpStream> {
        timeout(DEADLINE, self.connect(operation)).await.context("the target did not answer")?
    }

    async fn connect(&self, operation: u8) -> Result<TcpStream> {
        let mut stream = match &self.way {
            Way::Direct(address) => self.dial(*address).await?,
            Way::Tunnel { proxy, authority, authorization } => {
                let mut stream = self.dial(*proxy).await?;
                let request = format!(
                    "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: {authorization}\r\n\r\n"
                );
                stream.write_all(request.as_bytes()).await?;
                let head = read_head(&mut stream).await?;
                ensure!(head.starts_with("HTTP/1.1 200"), "the hub answers: {head}");
                stream
            }
        };
        stream.write_u8(operation).await?;
        Ok(stream)
    }

    async fn dial(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = netns::connect(&self.namespace, address, DEADLINE).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Returns the rate in megabits per second that this many connections reach together.
    pub async fn throughput(
        &self,
        transfer: Transfer,
        connections: u32,
        duration: Duration,
        target: &Target,
    ) -> Result<f64> {
        let operation = if transfer == Transfer::Download { SEND } else { RECEIVE };
        let mut streams = Vec::new();
        for _ in 0..connections {
            streams.push(self.open(operation).await?);
        }
        let downloaded = Arc::<AtomicU64>::default();
        let mut running = JoinSet::new();
        for stream in streams {
            running.spawn(transfer_bytes(stream, transfer, downloaded.clone()));
        }
        let count = || match transfer {
            Transfer::Download => downloaded.load(Ordering::Relaxed),
            Transfer::Upload => target.received(),
        };
        sleep(WARM_UP).await;
        let (started, before) = (Instant::now(), count());
        sleep(duration).await;
        let (took, bytes) = (started.elapsed(), count() - before);
        ensure!(running.try_join_next().is_none(), "a connection to the target broke");
        let bits = f64::from(u32::try_from(bytes / 125).unwrap_or(u32::MAX)) * 1_000.0;
        Ok(bits / took.as_secs_f64() / 1e6)
    }

    /// Returns whether the target answers through a new connection.
    async fn answers(&self) -> bool {
        let exchange = async {
            let mut stream = self.open(ECHO).await?;
            round_trip(&mut stream).await
        };
        exchange.await.is_ok()
    }

    /// Waits until the target answers through a new connection. Returns how long that took.
    ///
    /// Attempts start one after the other without waiting for each other: one that began too early may wait for seconds.
    pub async fn wait_until_answers(&self, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        let mut attempts = JoinSet::new();
        while started.elapsed() < limit {
            let client = self.clone();
            attempts.spawn(async move { client.answers().await });
            let answered = async {
                while let Some(answered) = attempts.join_next().await {
                    if answered? {
                        return Ok(());
                    }
                }
                // All have failed: the next one starts after the pause.
                std::future::pending().await
            };
            match timeout(RETRY, answered).await {
                Ok(Ok(())) => return Ok(started.elapsed()),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        bail!("the target did not answer within {} s", limit.as_secs())
    }
}

/// Sends a message and waits for its return.
pub async fn round_trip(stream: &mut TcpStream) -> Result<Duration> {
    let mut message = [7; MESSAGE];
    let started = Instant::now();
    let exchange = async {
        stream.write_all(&message).await?;
        stream.read_exact(&mut message).await.map(drop)
    };
    timeout(DEADLINE, exchange).await.context("the target returned nothing")??;
    Ok(started.elapsed())
}

async fn transfer_bytes(mut stream: TcpStream, transfer: Transfer, downloaded: Arc<AtomicU64>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let moved = match transfer {
            Transfer::Download => stream.read(&mut buffer).await,
            Transfer::Upload => stream.write(&buffer).await,
        };
        match moved {
            Ok(0) | Err(_) => return,
            Ok(read) if transfer == Transfer::Download => {
                downloaded.fetch_add(read as u64, Ordering::Relaxed);
            }
            Ok(_) => {}
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < 8 << 10, "the answer of the hub is too long");
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
