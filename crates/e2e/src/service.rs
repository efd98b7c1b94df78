//! A Service of Kubernetes: one address in front of several servers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::timeout,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

type Endpoints = Arc<Mutex<Vec<SocketAddr>>>;

/// Forwards each connection to the next of its endpoints that accepts it. Dropping it closes all connections.
pub struct Service {
    address: SocketAddr,
    endpoints: Endpoints,
    task: JoinHandle<()>,
}

impl Service {
    /// Starts a Service without endpoints on a free loopback port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoints = Endpoints::default();
        Self { address, task: tokio::spawn(forward_all(listener, endpoints.clone())), endpoints }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set_endpoints(&self, endpoints: &[SocketAddr]) {
        *self.endpoints.lock().unwrap() = endpoints.to_vec();
    }

    pub fn add_endpoint(&self, endpoint: SocketAddr) {
        let mut endpoints = self.endpoints.lock().unwrap();
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }

    /// Sends new connections elsewhere. Open ones are left unchanged.
    pub fn remove_endpoint(&self, endpoint: SocketAddr) {
        self.endpoints.lock().unwrap().retain(|other| *other != endpoint);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward_all(listener: TcpListener, endpoints: Endpoints) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(forward(client, next(&endpoints)));
        while connections.try_join_next().is_some() {}
    }
}

/// Returns the endpoints, and moves the first one to the end for the next connection.
fn next(endpoints: &Endpoints) -> Vec<SocketAddr> {
    let mut endpoints = endpoints.lock().unwrap();
    let current = endpoints.clone();
    if !endpoints.is_empty() {
        endpoints.rotate_left(1);
    }
    current
}

async fn forward(mut client: TcpStream, endpoints: Vec<SocketAddr>) {
    for endpoint in endpoints {
        if let Ok(Ok(mut server)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            // When one side fails, both are closed.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
