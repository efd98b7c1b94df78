//! A proxy that forwards connections, and records the requests.

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};

/// Target and credentials of every request.
pub type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

pub struct Forwarder {
    pub port: u16,
    requests: Requests,
}

impl Forwarder {
    /// Calls `serve` with each connection and the address to forward it to.
    pub async fn start<F>(
        target: String,
        serve: impl Fn(TcpStream, String, Requests) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Requests::default();
        let log = requests.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, target.clone(), log.clone()));
            }
        });
        Self { port, requests }
    }

    pub fn requests(&self) -> Vec<(String, Option<String>)> {
        self.requests.lock().unwrap().clone()
    }
}
