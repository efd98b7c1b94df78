//! Targets that cannot be reached, or only through a tunnel.

use std::time::Duration;

use chandler_tool::generated::tool::Target;
use tokio::{
    io::copy_bidirectional,
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
            // Nothing listens on this address: only the socket reaches the cluster.
            server: "https://tunneled.invalid:6443".to_owned(),
            dial: socket.to_string_lossy().into_owned(),
            ..context.target()
        };
        let server = context.target().server;
        let address = server.trim_start_matches("https://").to_owned();
        // The server's certificate is valid for the address that it listens on.
        let host = address.split(':').next().unwrap_or_default().to_owned();
        target.tls.get_or_insert_default().server_name = host;
        Ok(Self { task: tokio::spawn(forward(listener, address)), target })
    }
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
