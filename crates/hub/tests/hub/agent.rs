//! The agents' side: TLS, and an API server that echoes.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use chandler_tunnel::{
    AgentHandler, Budget, CloseReason, Pump, Settings,
    authority::CertificateAndKey,
    join_message::{About, HubList},
    serve_agent,
    tls::{Protocol, agent_client_config, server_name},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::world::within;

/// What a test sees of its agent.
pub struct TestAgent {
    target: SocketAddr,
    pub configured: watch::Sender<Option<HubList>>,
    pub draining: CancellationToken,
}

impl AgentHandler for TestAgent {
    type Target = TcpStream;

    async fn dial(&self) -> io::Result<TcpStream> {
        TcpStream::connect(self.target).await
    }

    fn about(&self, _: Option<&str>) -> About {
        About { node: "node-1".to_owned(), version: "0.1.0".to_owned() }
    }

    async fn configure(&self, hubs: HubList) -> Result<(), String> {
        self.configured.send_replace(Some(hubs));
        Ok(())
    }

    fn draining(&self) {
        self.draining.cancel();
    }
}

/// A connection of an agent.
pub struct RunningAgent {
    pub handler: Arc<TestAgent>,
    pub ended: JoinHandle<CloseReason>,
    _shutdown: CancellationToken,
}

impl RunningAgent {
    pub async fn ended(self) -> CloseReason {
        within(self.ended).await.unwrap()
    }
}

/// Opens a TLS connection to a hub.
pub async fn dial(
    hub: SocketAddr,
    ca_bundle: &str,
    certificate: Option<&CertificateAndKey>,
    protocol: Protocol,
) -> io::Result<TlsStream<TcpStream>> {
    let config = agent_client_config(ca_bundle, certificate, protocol).unwrap();
    let stream = TcpStream::connect(hub).await?;
    within(TlsConnector::from(Arc::new(config)).connect(server_name("localhost:8443").unwrap(), stream)).await
}

/// Connects an agent, whose API server is at `target`. TLS 1.3 shows a client only later that its certificate was refused.
pub async fn connect(
    hub: SocketAddr,
    ca_bundle: &str,
    certificate: &CertificateAndKey,
    target: SocketAddr,
) -> RunningAgent {
    let stream = dial(hub, ca_bundle, Some(certificate), Protocol::Tunnel).await.unwrap();
    let (configured, _) = watch::channel(None);
    let handler = Arc::new(TestAgent { target, configured, draining: CancellationToken::new() });
    let shutdown = CancellationToken::new();
    let ended = tokio::spawn({
        let (handler, shutdown) = (handler.clone(), shutdown.clone());
        async move {
            let pump = Pump::new(Budget::new(1 << 20));
            serve_agent(stream, handler, pump, &Settings::tunnel(), &shutdown).await
        }
    });
    RunningAgent { handler, ended, _shutdown: shutdown }
}

/// Starts a server that sends back what it receives, after its name.
pub async fn echo_server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::AsyncWriteExt::write_all(&mut write, name.as_bytes()).await?;
                tokio::io::copy(&mut read, &mut write).await?;
                tokio::io::AsyncWriteExt::shutdown(&mut write).await
            });
        }
    });
    address
}
