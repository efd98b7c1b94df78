//! A TCP proxy that can silently drop flows.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{JoinHandle, JoinSet},
};

/// The proxy. It ends when this is dropped.
pub struct FlowProxy {
    port: u16,
    /// Number of the last flow, and of the last flow that is dropped.
    opened: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for FlowProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FlowProxy {
    /// Starts a proxy in front of a port of this machine.
    pub async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opened, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (numbers, last_dropped) = (opened.clone(), dropped.clone());
        let task = tokio::spawn(async move {
            let mut flows = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = numbers.fetch_add(1, Ordering::SeqCst) + 1;
                flows.spawn(forward(client, upstream, number, last_dropped.clone()));
            }
        });
        Self { port, opened, dropped, task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Drops what any flow sends from now on, also that of new flows, until [`Self::drop_open_flows`] is called.
    pub fn drop_all_flows(&self) {
        self.dropped.store(u64::MAX, Ordering::SeqCst);
    }

    /// Drops what the open flows send from now on. They stay open, and new flows work.
    pub fn drop_open_flows(&self) {
        self.dropped.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

async fn forward(client: TcpStream, upstream: u16, number: u64, dropped: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(
        copy(from_client, to_server, number, dropped.clone()),
        copy(from_server, to_client, number, dropped)
    );
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64, dropped: Arc<AtomicU64>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let is_dropped = number <= dropped.load(Ordering::SeqCst);
        if !is_dropped && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
