//! Targets that cannot be reached, or only through a tunnel or a proxy.

use std::time::Duration;

use chandler_tool::generated::tool::{BasicAuth, Proxy, Target};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener},
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

/// A unix socket that forwards to the cluster. Dropping it closes every connection.
pub struct Tunnel {
    task: JoinHandle<()>,
    pub target: Target,
}

impl Tunnel {
    pub fn open(context: &Context) -> Result<Self, CaseError> {
        let socket = context.path("tunnel");
        let listener = UnixListener::bind(&socket)?;
        let mut target = Target {
            cluster: format!("{}/tunnel", context.namespace),
            dial: socket.to_string_lossy().into_owned(),
            ..context.target()
        };
        let address = hide_address(context, &mut target);
        Ok(Self { task: tokio::spawn(forward(listener, address)), target })
    }
}

/// Makes the server's name one that cannot be resolved. Returns the server's address.
fn hide_address(context: &Context, target: &mut Target) -> String {
    "https://hidden.invalid:6443".clone_into(&mut target.server);
    let address = context.target().server.trim_start_matches("https://").to_owned();
    // The server's certificate is valid for the address that it listens on.
    let host = address.split(':').next().unwrap_or_default().to_owned();
    target.tls.get_or_insert_default().server_name = host;
    address
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: UnixListener, address: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let address = address.clone();
        connections.spawn(async move {
            if let Ok(mut far) = TcpStream::connect(address).await {
                // When one side closes, both are closed.
                let _ = copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}

/// An HTTP proxy that requires a login and forwards every CONNECT request to the cluster.
pub struct ConnectProxy {
    task: JoinHandle<()>,
    pub target: Target,
}

impl ConnectProxy {
    pub async fn open(context: &Context) -> Result<Self, CaseError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let auth = BasicAuth { username: "user".to_owned(), password: "canary".to_owned() };
        let mut target = Target {
            cluster: format!("{}/proxied", context.namespace),
            proxy: Some(Proxy { url: format!("http://{}", listener.local_addr()?), auth: Some(auth) }),
            ..context.target()
        };
        let address = hide_address(context, &mut target);
        Ok(Self { task: tokio::spawn(forward_connects(listener, address)), target })
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `user:canary`, as the header of the request contains it.
const LOGIN: &str = "Basic dXNlcjpjYW5hcnk=";

async fn forward_connects(listener: TcpListener, address: String) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.spawn(forward_connect(near, address.clone()));
    }
}

async fn forward_connect(near: TcpStream, address: String) -> std::io::Result<()> {
    let mut near = BufReader::new(near);
    let mut authorized = false;
    loop {
        let mut line = String::new();
        near.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        authorized |=
            line.to_ascii_lowercase().starts_with("proxy-authorization:") && line.trim().ends_with(LOGIN);
    }
    if !authorized {
        return near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    }
    let mut far = TcpStream::connect(address).await?;
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}
