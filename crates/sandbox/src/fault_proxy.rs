//! A TCP proxy in front of a port of this machine, with the faults of a network.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What the proxy does with connections and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Forward,
    /// Delays all data.
    Delay(Duration),
    /// Resets open and new connections.
    Reset,
    /// Accepts connections and forwards nothing. What was sent meanwhile is forwarded when the mode changes.
    Hold,
    /// Accepts connections and discards what they send, without closing them.
    Drop,
}

/// Returns the source address of a connection to the upstream port, from the ports of the client and of the proxy. It may
/// block.
pub type SourceAddress = fn(u16, u16) -> Ipv4Addr;

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// The data of connections up to this number is discarded in every mode.
    dropped: u64,
}

/// The proxy. It ends when this is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    state: watch::Sender<State>,
    /// The number of the newest connection.
    opened: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FaultProxy {
    /// Starts a proxy in front of a port of this machine.
    pub async fn start(upstream: u16) -> io::Result<Self> {
        Self::start_with_source(upstream, |_, _| Ipv4Addr::LOCALHOST).await
    }

    /// Starts a proxy that connects to the upstream port from the addresses that `source_address` returns.
    pub async fn start_with_source(upstream: u16, source_address: SourceAddress) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (state, states) = watch::channel(State { mode: Mode::Forward, dropped: 0 });
        let (numbers, opened) = watch::channel(0);
        let upstream = Upstream { port: upstream, source_address };
        let task = tokio::spawn(accept(listener, upstream, numbers, states));
        Ok(Self { port, state, opened, task })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the mode of all connections, except those of [`Self::drop_open_connections`].
    pub fn set_mode(&self, mode: Mode) {
        self.state.send_modify(|state| state.mode = mode);
    }

    /// Discards what the open connections send from now on, in every mode, without closing them. New connections work.
    pub fn drop_open_connections(&self) {
        let opened = *self.opened.borrow();
        self.state.send_modify(|state| state.dropped = opened);
    }
}

/// The port to which the proxy connects, and from where.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    port: u16,
    source_address: SourceAddress,
}

impl Upstream {
    async fn connect(self, client: &TcpStream) -> io::Result<TcpStream> {
        let (client_port, proxy_port) = (client.peer_addr()?.port(), client.local_addr()?.port());
        let source = tokio::task::spawn_blocking(move || (self.source_address)(client_port, proxy_port));
        let source = source.await.unwrap_or(Ipv4Addr::LOCALHOST);
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        socket.connect(([127, 0, 0, 1], self.port).into()).await
    }
}

async fn accept(
    listener: TcpListener,
    upstream: Upstream,
    numbers: watch::Sender<u64>,
    states: watch::Receiver<State>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        numbers.send_modify(|number| *number += 1);
        let number = *numbers.borrow();
        connections.spawn(serve(client, upstream, number, states.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(client: TcpStream, upstream: Upstream, number: u64, mut states: watch::Receiver<State>) {
    let _ = states.wait_for(|state| state.mode != Mode::Hold).await;
    if states.borrow().mode == Mode::Reset {
        reset(&client);
        return;
    }
    let Ok(server) = upstream.connect(&client).await else {
        reset(&client);
        return;
    };
    forward(client, server, number, states).await;
}

async fn forward(mut client: TcpStream, mut server: TcpStream, number: u64, states: watch::Receiver<State>) {
    let mut resets = states.clone();
    let is_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::join!(
                copy(from_client, to_server, number, states.clone()),
                copy(from_server, to_client, number, states.clone())
            );
        };
        let reset = async {
            let _ = resets.wait_for(|state| state.mode == Mode::Reset).await;
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
    // Fails if the connection is already closed.
    let _ = stream.set_zero_linger();
}

/// Forwards one direction of a connection until it ends.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    mut states: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !admit(number, &mut states).await {
            continue;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // A dropped connection does not show that the other end has closed it.
    if admit(number, &mut states).await {
        let _ = to.shutdown().await;
    }
}

/// Waits as long as the mode requires. Returns whether the data is forwarded.
async fn admit(number: u64, states: &mut watch::Receiver<State>) -> bool {
    let _ = states.wait_for(|state| state.mode != Mode::Hold).await;
    let State { mode, dropped } = *states.borrow();
    if let Mode::Delay(delay) = mode {
        tokio::time::sleep(delay).await;
    }
    mode != Mode::Drop && number > dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(200);

    /// Starts a server that returns what it receives, and a proxy in front of it.
    async fn echo() -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        FaultProxy::start(port).await.unwrap()
    }

    async fn open(proxy: &FaultProxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
    }

    /// Sends a byte and waits for it to return.
    async fn answers(stream: &mut TcpStream, limit: Duration) -> bool {
        let exchange = async {
            stream.write_all(b"x").await?;
            stream.read_u8().await
        };
        matches!(tokio::time::timeout(limit, exchange).await, Ok(Ok(b'x')))
    }

    #[tokio::test]
    async fn data_passes_delayed_or_not() {
        let proxy = echo().await;
        let mut stream = open(&proxy).await;
        assert!(answers(&mut stream, LONG).await);
        proxy.set_mode(Mode::Delay(SHORT));
        let start = std::time::Instant::now();
        assert!(answers(&mut stream, LONG).await);
        assert!(start.elapsed() >= SHORT * 2);
    }

    #[tokio::test]
    async fn a_reset_closes_open_and_new_connections() {
        let proxy = echo().await;
        let mut stream = open(&proxy).await;
        assert!(answers(&mut stream, LONG).await);
        proxy.set_mode(Mode::Reset);
        let error = tokio::time::timeout(LONG, stream.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(!answers(&mut open(&proxy).await, LONG).await);
        proxy.set_mode(Mode::Forward);
        assert!(answers(&mut open(&proxy).await, LONG).await);
    }

    #[tokio::test]
    async fn held_data_arrives_when_the_mode_changes() {
        let proxy = echo().await;
        let mut stream = open(&proxy).await;
        assert!(answers(&mut stream, LONG).await);
        proxy.set_mode(Mode::Hold);
        assert!(!answers(&mut stream, SHORT).await);
        let mut new = open(&proxy).await;
        assert!(!answers(&mut new, SHORT).await);
        proxy.set_mode(Mode::Forward);
        for mut stream in [stream, new] {
            assert_eq!(tokio::time::timeout(LONG, stream.read_u8()).await.unwrap().unwrap(), b'x');
        }
    }

    #[tokio::test]
    async fn dropped_connections_stay_silent_and_new_ones_work() {
        let proxy = echo().await;
        let mut stream = open(&proxy).await;
        assert!(answers(&mut stream, LONG).await);
        proxy.drop_open_connections();
        assert!(!answers(&mut stream, SHORT).await);
        assert!(answers(&mut open(&proxy).await, LONG).await);
        assert!(!answers(&mut stream, SHORT).await, "it does not recover");
    }

    #[tokio::test]
    async fn dropped_data_is_lost_on_old_and_new_connections_until_the_mode_changes() {
        let proxy = echo().await;
        let mut stream = open(&proxy).await;
        assert!(answers(&mut stream, LONG).await);
        proxy.set_mode(Mode::Drop);
        assert!(!answers(&mut stream, SHORT).await);
        assert!(!answers(&mut open(&proxy).await, SHORT).await);
        proxy.drop_open_connections();
        proxy.set_mode(Mode::Forward);
        assert!(!answers(&mut stream, SHORT).await, "it does not recover");
        assert!(answers(&mut open(&proxy).await, LONG).await);
    }
}
