use std::{
    net::SocketAddr,
    sync::{Mutex, mpsc},
    time::Instant,
};

use chandler_core::identity::ClusterKey;
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::certificates::{CERTIFICATE_LIFETIME, Certificates};

const NAME: &str = "hooks.ships.svc";

enum FailingHandler {
    /// Blocks until the sender is dropped.
    Slow(Mutex<mpsc::Receiver<()>>),
    Panicking,
}

impl FailingHandler {
    fn fail(&self) -> HookResponse {
        match self {
            Self::Slow(end) => end.lock().unwrap().recv().unwrap_err(),
            Self::Panicking => panic!("no response"),
        };
        HookResponse::Proceed
    }
}

impl HookHandler for FailingHandler {
    fn before_cluster_upgrade(&self, _: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.fail()
    }

    fn before_control_plane_upgrade(&self, _: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.fail()
    }

    fn after_control_plane_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
        self.fail()
    }

    fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
        self.fail()
    }

    fn before_cluster_delete(&self, _: &ClusterKey) -> HookResponse {
        self.fail()
    }
}

#[tokio::test]
async fn a_handler_that_times_out_or_panics_makes_cluster_api_retry() {
    let request = br#"{"cluster": {"metadata": {"namespace": "fleet", "name": "blue"}}}"#;
    let request = HookRequest::parse(Hook::BeforeClusterDelete, request).unwrap();
    let (end, ended) = mpsc::channel();
    let rows = [
        (FailingHandler::Slow(Mutex::new(ended)), "Chandler did not respond in time"),
        (FailingHandler::Panicking, "Chandler failed to handle the hook; see its log"),
    ];
    for (handler, message) in rows {
        let response = call_handler(request.clone(), Arc::new(handler)).await;
        let expected = HookResponse::RetryAfter { seconds: RETRY_SECONDS, message: message.to_owned() };
        assert_eq!(response, expected);
    }
    drop(end);
}

/// Serves the hooks. Returns their address, and a client that trusts their certificate.
async fn serve() -> (SocketAddr, TlsConnector) {
    let (certificates, resolver) =
        Certificates::new(NAME.to_owned(), CERTIFICATE_LIFETIME, Timestamp::now()).unwrap();
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(certificates.ca_bundle().as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let state = ServerState {
        handler: Arc::new(FailingHandler::Panicking),
        control_plane_steps: Arc::default(),
        failure_policy: FailurePolicy::default(),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tls(resolver).unwrap();
    tokio::spawn(run(listener, acceptor, state));
    (address, TlsConnector::from(Arc::new(client)))
}

async fn connect(address: SocketAddr, client: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    client.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap()
}

/// Reads until the server closes the connection. Returns what it has sent, and how long that took.
async fn read_all(mut stream: impl AsyncRead + Unpin) -> (String, Duration) {
    let started = Instant::now();
    let (mut sent, mut chunk) = (Vec::new(), [0; 1024]);
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        sent.extend_from_slice(&chunk[..length]);
    }
    (String::from_utf8(sent).unwrap(), started.elapsed())
}

#[tokio::test]
async fn handshake_and_head_are_limited_in_time_and_a_connection_has_one_request() {
    let (address, client) = serve().await;
    let without_handshake = TcpStream::connect(address).await.unwrap();
    let mut without_end = connect(address, &client).await;
    without_end.write_all(b"POST /unknown HTTP/1.1\r\nhost: hooks\r\n").await.unwrap();
    let closed = tokio::join!(read_all(without_handshake), read_all(without_end));
    for (_, waited) in [closed.0, closed.1] {
        assert!(waited > Duration::from_secs(1) && waited < CONNECTION_TIMEOUT * 2 / 3, "{waited:?}");
    }

    let mut twice = connect(address, &client).await;
    let request = "POST /unknown HTTP/1.1\r\nhost: hooks\r\ncontent-length: 0\r\n\r\n";
    twice.write_all(request.repeat(2).as_bytes()).await.unwrap();
    let (answers, _) = read_all(twice).await;
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 1, "{answers}");
}
