//! An https server with any responses.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::certificates::Authority;
use crate::repository::{Error, server};

/// An https server on a free loopback port, with a certificate of an authority, until it is dropped.
#[derive(Debug)]
pub struct HttpsServer {
    /// Address and port.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl HttpsServer {
    pub async fn start(authority: &Authority, router: Router) -> Result<Self, Error> {
        let tls = server::tls(&authority.server(&[])?, None)?;
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|source| Error::Listen { source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { source })?;
        Ok(Self { address, task: tokio::spawn(server::run(listener, tls, router)) })
    }

    /// Returns the URL with the IP address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
