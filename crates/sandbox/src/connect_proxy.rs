//! An HTTP proxy that serves CONNECT requests and records them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy on a free loopback port. Dropping it closes all connections.
pub struct ConnectProxy {
    address: SocketAddr,
    targets: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts a proxy. With a `login` of user name and password, it refuses requests without it. With `upstream`, every
    /// connection leads to that address, whatever its target.
    pub async fn start(login: Option<(&str, &str)>, upstream: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let targets = Arc::<Mutex<Vec<String>>>::default();
        let login = login.map(|(user, password)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        });
        let rules =
            Arc::new(Rules { login, upstream: upstream.map(str::to_owned), targets: targets.clone() });
        Ok(Self { address, targets, server: tokio::spawn(run(listener, rules)) })
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the targets of all connections, as `HOST:PORT`.
    pub fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Rules {
    /// The expected `Proxy-Authorization`.
    login: Option<String>,
    upstream: Option<String>,
    targets: Arc<Mutex<Vec<String>>>,
}

async fn run(listener: TcpListener, rules: Arc<Rules>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let rules = rules.clone();
        connections.spawn(async move {
            if let Err(error) = serve(stream, &rules).await {
                tracing::debug!(%error, "a proxied connection ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, rules: &Rules) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (target, authorization) = read_request(&mut stream).await?;
    let Some(target) = target else { return stream.write_all(b"HTTP/1.1 405 Only CONNECT\r\n\r\n").await };
    if rules.login.is_some() && rules.login != authorization {
        return stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    }
    rules.targets.lock().unwrap_or_else(PoisonError::into_inner).push(target.clone());
    let mut upstream = TcpStream::connect(rules.upstream.as_ref().unwrap_or(&target)).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
}

/// Returns the target of a CONNECT request and its `Proxy-Authorization`.
async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<(Option<String>, Option<String>)> {
    let (mut target, mut authorization) = (None, None);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim();
        if line.is_empty() {
            return Ok((target, authorization));
        }
        if let Some(rest) = line.strip_prefix("CONNECT ") {
            target = rest.split_whitespace().next().map(str::to_owned);
        }
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("proxy-authorization")
        {
            authorization = Some(value.to_owned());
        }
    }
}
