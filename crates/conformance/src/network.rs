//! Targets that cannot be reached, or only through a proxy.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chandler_tool::generated::tool::{BasicAuth, Proxy, Target};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use super::{CaseError, context::Context, request::duration};

/// Returns a target with another name and address.
pub fn elsewhere(context: &Context, server: String) -> Target {
    Target {
        cluster: format!("{}/elsewhere", context.namespace),
        server,
        request_timeout: duration(Duration::from_secs(2)),
        ..context.target()
    }
}

/// A server that takes connections and never answers.
pub struct BlackHole {
    task: JoinHandle<()>,
    pub server: String,
}

impl BlackHole {
    pub async fn open() -> Result<Self, CaseError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let server = format!("https://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                taken.push(connection);
            }
        });
        Ok(Self { task, server })
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes the server's name one that cannot be resolved. Returns the server's address.
fn hide_address(context: &Context, target: &mut Target) -> String {
    target.server = format!("https://{HIDDEN}");
    let address = context.target().server.trim_start_matches("https://").to_owned();
    // The server's certificate is valid for the address that it listens on.
    let host = address.split(':').next().unwrap_or_default().to_owned();
    target.tls.get_or_insert_default().server_name = host;
    address
}

/// An HTTP proxy that requires a login and forwards every CONNECT request for [`HIDDEN`] to the cluster. Dropping it closes
/// every connection.
pub struct ConnectProxy {
    task: JoinHandle<()>,
    pub target: Target,
    requests: Arc<Requests>,
}

/// The requests that a proxy has answered.
#[derive(Default)]
struct Requests {
    forwarded: AtomicUsize,
    refused: AtomicUsize,
}

impl ConnectProxy {
    pub async fn open(context: &Context) -> Result<Self, CaseError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let mut target = Target {
            cluster: format!("{}/proxied", context.namespace),
            proxy: Some(Proxy {
                url: format!("http://{}", listener.local_addr()?),
                auth: Some(login("canary")),
            }),
            ..context.target()
        };
        let address = hide_address(context, &mut target);
        let requests = Arc::<Requests>::default();
        let task = tokio::spawn(forward_connects(listener, address, requests.clone()));
        Ok(Self { task, target, requests })
    }

    /// Returns the same target, seen as another cluster, with other credentials for the proxy.
    pub fn target_with_login(&self, context: &Context, name: &str, auth: Option<BasicAuth>) -> Target {
        let mut target = self.target.clone();
        target.cluster = format!("{}/{name}", context.namespace);
        target.proxy.get_or_insert_default().auth = auth;
        target
    }

    /// Returns how many requests the proxy has forwarded.
    pub fn forwarded(&self) -> usize {
        self.requests.forwarded.load(Ordering::Relaxed)
    }

    /// Returns how many requests the proxy has refused.
    pub fn refused(&self) -> usize {
        self.requests.refused.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Credentials for the proxy. It accepts the password `canary` only.
pub fn login(password: &str) -> BasicAuth {
    BasicAuth { username: "user".to_owned(), password: password.to_owned() }
}

/// The only host and port that the proxy forwards to the cluster.
const HIDDEN: &str = "hidden.invalid:6443";
/// `user:canary`, as the header of the request contains it.
const LOGIN: &str = "Basic dXNlcjpjYW5hcnk=";

async fn forward_connects(listener: TcpListener, address: String, requests: Arc<Requests>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.spawn(forward_connect(near, address.clone(), requests.clone()));
    }
}

async fn forward_connect(near: TcpStream, address: String, requests: Arc<Requests>) -> std::io::Result<()> {
    let mut near = BufReader::new(near);
    let (mut authorized, mut expected) = (false, false);
    loop {
        let mut line = String::new();
        near.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        expected |= line.starts_with(&format!("CONNECT {HIDDEN} HTTP/1.1"));
        authorized |=
            line.to_ascii_lowercase().starts_with("proxy-authorization:") && line.trim().ends_with(LOGIN);
    }
    if !authorized || !expected {
        requests.refused.fetch_add(1, Ordering::Relaxed);
        let status = if authorized { "403 Forbidden" } else { "407 Proxy Authentication Required" };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return near.write_all(response.as_bytes()).await;
    }
    requests.forwarded.fetch_add(1, Ordering::Relaxed);
    let mut far = TcpStream::connect(address).await?;
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}
