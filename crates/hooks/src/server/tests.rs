use std::{
    net::SocketAddr,
    sync::{Mutex, atomic::AtomicUsize, mpsc},
    time::Instant,
};

use chandler_core::identity::ClusterKey;
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{
    HookCall,
    certificates::{CERTIFICATE_LIFETIME, Certificates},
};

const NAME: &str = "hooks.ships.svc";
const LIMIT: Duration = Duration::from_mins(1);

enum FailingHandler {
    /// Blocks until the sender is dropped.
    Slow(Mutex<mpsc::Receiver<()>>),
    Panicking,
}

impl HookHandler for FailingHandler {
    fn respond(&self, _: &ClusterKey, _: HookCall<'_>, _: &Caller) -> HookResponse {
        match self {
            Self::Slow(end) => end.lock().unwrap().recv().unwrap_err(),
            Self::Panicking => panic!("no response"),
        };
        HookResponse::Proceed
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
        let response = call_handler(request.clone(), &Handling::new(Arc::new(handler))).await;
        let expected = HookResponse::RetryAfter { seconds: RETRY_SECONDS, message: message.to_owned() };
        assert_eq!(response, expected);
    }
    drop(end);
}

/// Plans upgrades until the caller has given up.
struct PlanningHandler {
    begun: AtomicUsize,
    /// Gets a message from each call that has ended.
    ended: mpsc::Sender<()>,
}

impl PlanningHandler {
    fn new() -> (Arc<Self>, mpsc::Receiver<()>) {
        let (ended, ends) = mpsc::channel();
        (Arc::new(Self { begun: AtomicUsize::new(0), ended }), ends)
    }

    async fn wait_begun(&self, count: usize) {
        let begun = async {
            while self.begun.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, begun).await.expect("the calls begin");
    }
}

impl HookHandler for PlanningHandler {
    fn respond(&self, _: &ClusterKey, _: HookCall<'_>, caller: &Caller) -> HookResponse {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let started = Instant::now();
        while !caller.has_given_up() && started.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if caller.has_given_up() {
            let _ = self.ended.send(());
        }
        HookResponse::Proceed
    }
}

const UPGRADE: &str = r#"{"cluster": {"metadata": {"namespace": "fleet", "name": "blue"}},
    "fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": "v1.35.4"}"#;

fn upgrade() -> HookRequest {
    HookRequest::parse(Hook::BeforeClusterUpgrade, UPGRADE.as_bytes()).unwrap()
}

#[tokio::test]
async fn planning_ends_when_the_call_times_out() {
    let (handler, ends) = PlanningHandler::new();
    let response = call_handler(upgrade(), &Handling::new(handler)).await;
    assert!(matches!(response, HookResponse::RetryAfter { .. }), "{response:?}");
    tokio::task::spawn_blocking(move || ends.recv_timeout(LIMIT / 2).unwrap()).await.unwrap();
}

#[tokio::test]
async fn planning_ends_when_the_connection_is_closed() {
    let (handler, ends) = PlanningHandler::new();
    let (address, client) = serve(handler.clone()).await;
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: hooks\r\ncontent-length: {}\r\n\r\n",
        Hook::BeforeClusterUpgrade.path(),
        UPGRADE.len()
    );
    let request = head + UPGRADE;
    // On a busy machine, a call may time out before it is noticed that its connection is closed.
    let (mut ends, mut calls) = (ends, 0);
    loop {
        calls += 1;
        let started = Instant::now();
        let mut caller = connect(address, &client).await;
        caller.write_all(request.as_bytes()).await.unwrap();
        handler.wait_begun(calls).await;
        drop(caller);
        let end = move || ends.recv_timeout(LIMIT / 2).map(|()| ends).unwrap();
        ends = tokio::task::spawn_blocking(end).await.unwrap();
        if started.elapsed() < HANDLER_TIMEOUT {
            break;
        }
        assert!(calls < 10, "it ends only when the call times out");
    }
}

#[tokio::test]
async fn few_calls_are_handled_at_the_same_time() {
    let (handler, _ends) = PlanningHandler::new();
    let handling = Handling::new(handler.clone());
    let mut calls = JoinSet::new();
    for _ in 0..2 * MAX_HANDLED {
        let handling = handling.clone();
        calls.spawn(async move { handling.call(upgrade()).await.map_err(|error| error.to_string()) });
    }
    handler.wait_begun(MAX_HANDLED).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(handler.begun.load(Ordering::SeqCst), MAX_HANDLED, "the others wait");
    // Those that wait are handled as soon as others have ended.
    calls.abort_all();
    while calls.join_next().await.is_some() {}
    let next = tokio::spawn(async move { handling.call(upgrade()).await.map(drop).ok() });
    handler.wait_begun(MAX_HANDLED + 1).await;
    next.abort();
}

/// Serves the hooks. Returns their address, and a client that trusts their certificate.
async fn serve(handler: Arc<dyn HookHandler>) -> (SocketAddr, TlsConnector) {
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
        handler: Handling::new(handler),
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
    let (address, client) = serve(Arc::new(FailingHandler::Panicking)).await;
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
