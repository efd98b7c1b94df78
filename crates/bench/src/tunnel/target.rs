//! The target at the site: sends, receives or returns bytes, as the first byte of a connection asks.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use chandler_sandbox::netns::NetworkNamespace;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

use super::network::{SITE, listen};

/// Returns every byte.
pub const ECHO: u8 = b'e';
/// Sends until the client closes the connection.
pub const SEND: u8 = b's';
/// Receives until the client closes the connection, and counts.
pub const RECEIVE: u8 = b'r';

const CHUNK: usize = 64 << 10;

/// The target. It ends when this is dropped.
#[derive(Debug)]
pub struct Target {
    pub address: SocketAddr,
    received: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Target {
    pub async fn start(site: &NetworkNamespace) -> Result<Self> {
        let received = Arc::<AtomicU64>::default();
        let listener = listen(site, (SITE, 0)).await?;
        let address = listener.local_addr()?;
        let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, received.clone())));
        Ok(Self { address, received, _task: task })
    }

    /// Returns how many bytes connections with [`RECEIVE`] have received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, received: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let received = received.clone();
        connections.spawn(async move {
            // A client closes its connection when it has measured enough, which is an error here.
            let _ = serve(stream, &received).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, received: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; CHUNK];
    match stream.read_u8().await? {
        SEND => loop {
            stream.write_all(&buffer).await?;
        },
        RECEIVE => loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                read => received.fetch_add(read as u64, Ordering::Relaxed),
            };
        },
        _ => {
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await.map(drop)
        }
    }
}
