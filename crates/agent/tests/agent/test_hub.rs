//! A small hub on a loopback port, made of the hub's side of `chandler_tunnel`.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use chandler_tunnel::{
    AgentConnection, CertificateFacts, HubEndpoint, HubNames, JoinToken, Settings, TunnelId, TunnelIdentity,
    TunnelKeys, TunnelOwner,
    join_message::{About, JoinRefusal, JoinRequest, JoinResponse},
    tls::{Protocol, peer_certificate, public_server_config},
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex as AsyncMutex, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

/// Everything that is awaited happens much sooner.
pub const LIMIT: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

/// Returns the Cluster of every tunnel.
fn owner() -> TunnelOwner {
    TunnelOwner::of("fleet", "site")
}

/// How an agent has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Token,
    Renewal,
}

/// A connection of an agent.
pub struct Connected {
    pub connection: AgentConnection,
    pub identity: TunnelIdentity,
    pub about: About,
}

/// The hub. It ends when this is dropped.
pub struct TestHub {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    connections: AsyncMutex<mpsc::UnboundedReceiver<Connected>>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    keys: TunnelKeys,
    tunnel: TunnelId,
    epoch: AtomicU32,
    /// The age of certificates that are signed for a token.
    certificate_age: Duration,
    joins: Mutex<Vec<Join>>,
    connected: mpsc::UnboundedSender<Connected>,
}

impl TestHub {
    pub async fn start(tunnel: TunnelId) -> Self {
        Self::start_with_age(tunnel, Duration::ZERO).await
    }

    /// Starts a hub whose certificates for tokens have the age of so many days.
    pub async fn start_with_old_certificates(tunnel: TunnelId, days: u32) -> Self {
        Self::start_with_age(tunnel, DAY * days).await
    }

    async fn start_with_age(tunnel: TunnelId, certificate_age: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let names = HubNames::new(&[address.to_string()], "chandler-system");
        let keys = TunnelKeys::generate(&names, Timestamp::now()).unwrap();
        let (connected, connections) = mpsc::unbounded_channel();
        let (epoch, joins) = (AtomicU32::new(1), Mutex::default());
        let shared = Arc::new(Shared { keys, tunnel, epoch, certificate_age, joins, connected });
        let accepting = accept(listener, shared.clone());
        Self {
            address,
            shared,
            connections: AsyncMutex::new(connections),
            _task: AbortOnDropHandle::new(tokio::spawn(accepting)),
        }
    }

    pub fn installation(&self) -> String {
        self.shared.keys.installation.to_string()
    }

    /// Returns the entry of this hub for the agent, with a token that expires after so many hours.
    pub fn endpoint(&self, hours: u64) -> HubEndpoint {
        let expires = Timestamp::now() + Duration::from_hours(hours);
        let token = JoinToken {
            tunnel: self.shared.tunnel,
            owner: owner(),
            epoch: self.shared.epoch.load(Ordering::Relaxed),
            expires: Timestamp::from_second(expires.as_second()).unwrap(),
        };
        HubEndpoint {
            address: self.address.to_string(),
            ca_bundle: self.shared.keys.ca_bundle().to_owned(),
            token: token.sign(&self.shared.keys.signing),
        }
    }

    /// Revokes all tokens and certificates.
    pub fn revoke(&self) {
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the next connection of an agent.
    pub async fn connected(&self) -> Connected {
        let mut connections = self.connections.lock().await;
        timeout(LIMIT, connections.recv()).await.expect("no agent has connected").unwrap()
    }

    pub fn joins(&self) -> Vec<Join> {
        self.shared.joins.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let acceptor = TlsAcceptor::from(Arc::new(public_server_config(&shared.keys).unwrap()));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            // The agent closes connections to a hub that it does not trust.
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, &shared).await;
            }
        });
    }
}

async fn serve(stream: TlsStream<TcpStream>, shared: &Shared) {
    let (_, tls) = stream.get_ref();
    let certificate = peer_certificate(tls.peer_certificates()).unwrap();
    match Protocol::negotiated(tls.alpn_protocol()) {
        Some(Protocol::Join) => join(stream, certificate, shared).await.unwrap(),
        Some(Protocol::Tunnel) => {
            let identity = certificate.expect("an agent has a certificate").agent().unwrap();
            if identity.epoch != shared.epoch.load(Ordering::Relaxed) {
                return;
            }
            let connection = AgentConnection::start(stream, &Settings::tunnel()).await.unwrap();
            let about = connection.about(&shared.keys.installation.to_string()).await.unwrap();
            // At the end of a test, no receiver waits for it.
            let _ = shared.connected.send(Connected { connection, identity, about });
        }
        other => panic!("an agent has asked for {other:?}"),
    }
}

async fn join(
    mut stream: TlsStream<TcpStream>,
    certificate: Option<CertificateFacts>,
    shared: &Shared,
) -> io::Result<()> {
    let request: JoinRequest = serde_json::from_slice(&read_body(&mut stream).await?)?;
    let epoch = shared.epoch.load(Ordering::Relaxed);
    let now = Timestamp::now();
    let (proven, kind, signed) = match (&request.token, certificate) {
        (Some(token), None) => {
            let token = JoinToken::verify(token.expose_secret(), &shared.keys.signing, now);
            let token = token.map(|token| (token.tunnel, token.owner, token.epoch));
            (token.map_err(|error| error.to_string()), Join::Token, now - shared.certificate_age)
        }
        (None, Some(certificate)) => {
            let identity = certificate.agent().unwrap();
            (Ok((identity.tunnel, identity.owner, identity.epoch)), Join::Renewal, now)
        }
        other => panic!("a join has a token or a certificate: {other:?}"),
    };
    let (status, body) = match proven {
        Ok(proven) if proven == (shared.tunnel, owner(), epoch) => {
            let (installation, tunnel) = (shared.keys.installation, shared.tunnel);
            let identity = TunnelIdentity { installation, tunnel, owner: owner(), epoch };
            let certificate = shared.keys.authority.sign_agent(&request.csr, identity, signed).unwrap();
            shared.joins.lock().unwrap().push(kind);
            ("200 OK", serde_json::to_string(&JoinResponse { certificate })?)
        }
        Ok(_) => ("403 Forbidden", refusal("revoked")?),
        Err(error) => ("401 Unauthorized", refusal(&error)?),
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn refusal(message: &str) -> serde_json::Result<String> {
    serde_json::to_string(&JoinRefusal { message: message.to_owned() })
}

async fn read_body(stream: &mut TlsStream<TcpStream>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("POST /join HTTP/1.1\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
