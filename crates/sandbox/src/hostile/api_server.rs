//! API servers that attack Chandler, and servers that Chandler must not reach.

mod responses;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use self::responses::{endless, nested_discovery, records, respond, usual};
use crate::certificates::Authority;
use crate::repository::{Error, server};

/// How an API server attacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attack {
    /// The manager gets responses without an end.
    EndlessLists,
    /// The manager gets errors without an end.
    EndlessErrors,
    /// The manager gets an event without an end.
    EndlessEvents,
    /// The manager gets a list of records with millions of empty objects, which take much more memory than their text.
    ManyObjects,
    /// The manager gets a list of records with a version of many MiB.
    LongVersion,
    /// The manager gets an event of a record with millions of empty fields.
    ManyFields,
    /// The manager gets a list of records that is a text, as another server may answer it.
    Text,
    /// The manager gets an event that is no status of Kubernetes, but has a message.
    ErrorEvent,
    /// The manager gets most of a large list of records, and then nothing.
    UnfinishedLists,
    /// The manager gets a list of records of which a byte arrives every 100 ms.
    SlowLists,
    /// The manager gets a list of records with a label that is a list in lists.
    NestedLists,
    /// The manager gets a page of a list of records that promises another one, each time.
    EndlessPages,
    /// The manager gets an error with a long message.
    LongErrors,
    /// The manager gets a response with a header of many MiB.
    LongHeaders,
    /// The driver gets responses without an end.
    EndlessDiscovery,
    /// The driver gets a discovery of lists in lists.
    NestedDiscovery,
    /// The manager is redirected to this address.
    RedirectManager(SocketAddr),
    /// The driver is redirected to this address.
    RedirectDriver(SocketAddr),
    /// Requests are read, and nothing follows.
    Silence,
}

/// An API server that attacks its clients. It ends when this is dropped.
pub struct HostileServer {
    port: u16,
    authority: String,
    task: JoinHandle<()>,
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HostileServer {
    /// Starts the server, with a certificate authority of its own in a folder.
    pub async fn start(folder: &Path, attack: Attack) -> Result<Self, Error> {
        let authority = Authority::open(folder, "hostile")?;
        let tls = server::tls(&authority.server(&[])?, None)?;
        let listen = |source| Error::Listen { source };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(listen)?;
        let port = listener.local_addr().map_err(listen)?.port();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, tls.clone(), attack.clone()));
            }
        });
        Ok(Self { port, authority: authority.certificate().to_owned(), task })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the certificate of the server's authority, in PEM and base64.
    pub fn authority(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    /// Returns a kubeconfig for the server.
    pub fn kubeconfig(&self) -> String {
        let (port, authority) = (self.port, self.authority());
        kubeconfig(&format!("server: 'https://127.0.0.1:{port}', certificate-authority-data: {authority}"))
    }
}

/// Returns a kubeconfig with these fields of its cluster, in flow style.
pub fn kubeconfig(cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{token: unused}}}}]\n"
    )
}

/// The parts of the head of a request that matter here.
struct Head {
    path: String,
    is_driver: bool,
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, attack: Attack) {
    let Ok(mut stream) = tls.accept(stream).await else { return };
    while let Some(head) = request_head(&mut stream).await {
        let answered = match (&attack, head.is_driver) {
            (Attack::Silence, _) => std::future::pending().await,
            (Attack::EndlessLists, false) | (Attack::EndlessDiscovery, true) => {
                endless(&mut stream, "200 OK").await
            }
            (Attack::EndlessErrors, false) => endless(&mut stream, "500 Internal Server Error").await,
            (Attack::EndlessEvents, false) if head.path.contains("watch=true") => {
                endless(&mut stream, "200 OK").await
            }
            (Attack::RedirectManager(to), false) | (Attack::RedirectDriver(to), true) => {
                let location = format!("location: http://{to}{}\r\n", head.path);
                respond(&mut stream, "307 Temporary Redirect", &location, "").await
            }
            (Attack::NestedDiscovery, true) if !head.path.starts_with("/version") => {
                nested_discovery(&mut stream).await
            }
            (attack, false) if head.path.contains("/secrets") => {
                let is_watch = head.path.contains("watch=true");
                records(&mut stream, attack, is_watch, &head.path).await
            }
            _ => usual(&mut stream, &head.path).await,
        };
        if answered.is_err() {
            return;
        }
    }
}

/// Reads the head of a request without a body.
async fn request_head(stream: &mut TlsStream<TcpStream>) -> Option<Head> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split_ascii_whitespace().nth(1)?.to_owned();
    let is_driver =
        head.lines().any(|line| line.to_ascii_lowercase().starts_with("user-agent: chandler-helm"));
    Some(Head { path, is_driver })
}

/// A server inside the network that Chandler must not reach. It counts connections, and answers with a secret.
pub struct InternalServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// What an internal server answers.
pub const INTERNAL_SECRET: &str = "secret-of-an-internal-server";

impl Drop for InternalServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl InternalServer {
    pub async fn start(address: impl Into<IpAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind((address.into(), 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::<AtomicUsize>::default();
        let counted = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let length = INTERNAL_SECRET.len();
                let answer =
                    format!("HTTP/1.1 500 Error\r\ncontent-length: {length}\r\n\r\n{INTERNAL_SECRET}");
                // The client may have closed the connection.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(Self { address, connections, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
