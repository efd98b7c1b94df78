//! A server that hands connections on, whatever it is asked in, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};

/// What it was asked for, and with which credentials.
pub type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

pub struct Forwarder {
    pub port: u16,
    seen: Seen,
}

impl Forwarder {
    /// Each connection is given to `serve`, with the address at which everything asked for is found.
    pub async fn start<F>(
        target: String,
        serve: impl Fn(TcpStream, String, Seen) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let log = seen.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, target.clone(), log.clone()));
            }
        });
        Self { port, seen }
    }

    pub fn seen(&self) -> Vec<(String, Option<String>)> {
        self.seen.lock().unwrap().clone()
    }
}
