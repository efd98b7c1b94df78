mod client_certificate;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use chandler_core::{identity::ClusterKey, target::TargetTls};
use chandler_sandbox::{certificates::Authority, connect_proxy::ConnectProxy, repository::ChartRepository};
use chandler_telemetry::RequestCount;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::api_server::{LONG, client_options as options};

/// A name that only a proxy of these tests resolves.
const HIDDEN: &str = "hidden.invalid";

fn target(server: &str, ca: &str) -> Target {
    Target {
        cluster: ClusterKey::new("fleet", "blue"),
        server: server.to_owned(),
        tls: TargetTls { ca_pem: Some(ca.as_bytes().to_vec()), ..TargetTls::default() },
        auth: None,
        proxy: None,
        request_timeout: Duration::from_secs(10),
        boundary: chandler_core::tenancy::Boundary::default(),
    }
}

/// Reads a file of the server. The repository stands for an API server: it is an https server with a known file.
async fn read(target: &Target) -> Result<String, Failure> {
    let TargetClient { client, .. } = client(target, &options(&RequestCounter::default()))?;
    let request = Request::get("/index.yaml").body(Vec::new()).unwrap();
    let text = client.read(request).await.map_err(|error| error.failure())?;
    Ok(String::from_utf8(text.to_vec()).unwrap())
}

fn through_proxy(target: &Target, url: String, login: Option<(&str, &str)>) -> Target {
    let credentials = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
    Target { proxy: Some(TargetProxy { url, credentials }), ..target.clone() }
}

async fn repository(folder: &Path) -> (Authority, ChartRepository) {
    let authority = Authority::open(&folder.join("pki"), "test").unwrap();
    let repository = ChartRepository::start(&authority, &folder.join("files")).await.unwrap();
    (authority, repository)
}

#[tokio::test]
async fn a_server_whose_certificate_is_the_configured_authority_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let server = ChartRepository::start_self_signed(folder.path()).await.unwrap();
    let trusted = target(server.url(), server.ca_pem());
    read(&trusted).await.unwrap();

    let mut misnamed = trusted.clone();
    misnamed.tls.server_name = Some("other.example".to_owned());
    let other = ChartRepository::start_self_signed(&folder.path().join("other")).await.unwrap();
    let untrusted = target(server.url(), other.ca_pem());
    for target in [misnamed, untrusted] {
        let failure = read(&target).await.unwrap_err();
        assert_eq!(failure.category, Category::Unreachable);
        assert!(failure.message.contains("certificate"), "{failure}");
    }
}

#[tokio::test]
async fn an_authority_that_is_no_certificate_is_reported() {
    let failure = read(&target("https://127.0.0.1:1", "nonsense")).await.unwrap_err();
    assert_eq!(failure.category, Category::InvalidSpec);
    assert!(failure.message.contains("certificate authority"), "{failure}");
}

#[tokio::test]
async fn the_proxy_of_the_target_is_used_with_its_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (_, server) = repository(folder.path()).await;
    let direct = target(server.url(), server.ca_pem());
    let proxy = ConnectProxy::start(Some(("user", "canary p@ss")), None).await.unwrap();
    let url = format!("http://{}", proxy.address());

    read(&through_proxy(&direct, url.clone(), Some(("user", "canary p@ss")))).await.unwrap();
    assert_eq!(proxy.targets(), [server.url().trim_start_matches("https://")]);
    read(&direct).await.unwrap();
    assert_eq!(proxy.targets().len(), 1, "a target without a proxy is reached directly");

    let failure = read(&through_proxy(&direct, url.clone(), Some(("user", "canary")))).await.unwrap_err();
    assert_eq!(failure.category, Category::Unreachable);
    assert!(failure.message.contains(&url) && failure.message.contains("authorization"), "{failure}");
    assert!(!failure.message.contains("canary"), "{failure}");
}

#[tokio::test]
async fn an_https_proxy_is_verified_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, server) = repository(folder.path()).await;
    let direct = target(server.url(), server.ca_pem());
    let proxy = ConnectProxy::start(None, None).await.unwrap();
    let port = terminate_tls(&authority, proxy.address().to_string()).await;
    read(&through_proxy(&direct, format!("https://127.0.0.1:{port}"), None)).await.unwrap();
    assert_eq!(proxy.targets().len(), 1);

    let other = Authority::open(&folder.path().join("other"), "other").unwrap();
    let port = terminate_tls(&other, proxy.address().to_string()).await;
    let url = format!("https://127.0.0.1:{port}");
    let failure = read(&through_proxy(&direct, url.clone(), None)).await.unwrap_err();
    assert!(failure.message.contains(&url) && failure.message.contains("certificate"), "{failure}");
    assert_eq!(proxy.targets().len(), 1, "an unknown proxy gets no request");
}

/// Accepts TLS connections, and forwards what they contain. Returns the port.
async fn terminate_tls(authority: &Authority, address: String) -> u16 {
    let acceptor = acceptor(authority);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut near) = acceptor.accept(stream).await else { return };
        let mut far = TcpStream::connect(address).await.unwrap();
        let _ = copy_bidirectional(&mut near, &mut far).await;
    });
    port
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let pair = authority.server(&[]).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (_, server) = repository(folder.path()).await;
    let address = server.url().trim_start_matches("https://").to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let proxy = format!("socks5://{}", listener.local_addr().unwrap());
    let requested = tokio::spawn(serve_socks(listener, address));
    let mut target = target(&format!("https://{HIDDEN}:6443"), server.ca_pem());
    target.tls.server_name = Some("localhost".to_owned());
    read(&through_proxy(&target, proxy, None)).await.unwrap();
    assert_eq!(requested.await.unwrap(), HIDDEN);
}

/// Serves one connection of SOCKS 5 (RFC 1928) without authentication. Returns the requested name.
async fn serve_socks(listener: TcpListener, address: String) -> String {
    let (mut near, _) = listener.accept().await.unwrap();
    let mut greeting = [0; 3];
    near.read_exact(&mut greeting).await.unwrap();
    near.write_all(&[5, 0]).await.unwrap();
    let mut head = [0; 5];
    near.read_exact(&mut head).await.unwrap();
    let mut name = vec![0; head[4].into()];
    near.read_exact(&mut name).await.unwrap();
    near.read_u16().await.unwrap();
    let mut far = TcpStream::connect(address).await.unwrap();
    near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
    String::from_utf8(name).unwrap()
}

/// What a server does with a connection on which it has sent an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterAnswer {
    AnswerAgain,
    Close,
    /// It answers no further request.
    Stall,
}

/// The heads of the requests of each connection.
type Heads = Arc<Mutex<Vec<Vec<String>>>>;

/// A server that refuses every request, and records its head.
struct RefusingServer {
    port: u16,
    heads: Heads,
}

impl RefusingServer {
    async fn start(authority: &Authority, after_answer: AfterAnswer) -> Self {
        let acceptor = acceptor(authority);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Heads::default();
        let recorded = heads.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, recorded) = (acceptor.clone(), recorded.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    refuse(stream, after_answer, &recorded).await;
                });
            }
        });
        Self { port, heads }
    }

    /// Returns the number of requests of each connection.
    fn requests(&self) -> Vec<usize> {
        self.heads.lock().unwrap().iter().map(Vec::len).collect()
    }
}

async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, after_answer: AfterAnswer, heads: &Heads) {
    let connection = {
        let mut heads = heads.lock().unwrap();
        heads.push(Vec::new());
        heads.len() - 1
    };
    let mut answers = 0;
    while let Some(head) = head(&mut stream).await {
        heads.lock().unwrap()[connection].push(head);
        if after_answer == AfterAnswer::Stall && answers > 0 {
            continue;
        }
        let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        answers += 1;
        if after_answer == AfterAnswer::Close {
            return;
        }
    }
}

/// Reads the head of a request. `None` means that the connection has ended.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Starts a server, and returns it with a probe of it and the counted requests.
async fn probed(after_answer: AfterAnswer) -> (RefusingServer, Probe, RequestCounter) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("pki"), "test").unwrap();
    let server = RefusingServer::start(&authority, after_answer).await;
    let url = format!("https://127.0.0.1:{}/clusters/blue/", server.port);
    let auth = Some(TargetAuth::BearerToken("canary".to_owned()));
    let target = Target { auth, ..target(&url, authority.certificate()) };
    let requests = RequestCounter::default();
    let TargetClient { probe, .. } = client(&target, &options(&requests)).unwrap();
    (server, probe, requests)
}

#[tokio::test]
async fn probes_take_any_answer_and_share_a_connection() {
    let (server, mut probe, requests) = probed(AfterAnswer::AnswerAgain).await;
    assert!(!probe.is_connected());
    for _ in 0..3 {
        probe.answer().await.unwrap();
        assert!(probe.is_connected());
    }
    let connections = server.heads.lock().unwrap().clone();
    let [heads] = connections.as_slice() else { panic!("{connections:?}") };
    assert_eq!(heads.len(), 3);
    let host = format!("\r\nhost: 127.0.0.1:{}\r\n", server.port);
    for head in heads {
        assert!(head.starts_with("GET /clusters/blue/version HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&host), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer canary\r\n"), "{head}");
        assert!(head.contains("\r\nuser-agent: chandler/"), "{head}");
    }
    let expected = RequestCount { verb: "get", result: "server_error", count: 3 };
    assert_eq!(requests.counts(), [expected]);
}

#[tokio::test]
async fn a_probe_whose_connection_was_closed_opens_another() {
    let (server, mut probe, requests) = probed(AfterAnswer::Close).await;
    for _ in 0..3 {
        probe.answer().await.unwrap();
    }
    assert_eq!(server.requests(), [1, 1, 1]);
    let expected = RequestCount { verb: "get", result: "server_error", count: 3 };
    assert_eq!(requests.counts(), [expected], "a closed connection is no missing answer");
}

#[tokio::test]
async fn a_probe_notices_that_its_connection_was_closed() {
    let (_server, mut probe, _) = probed(AfterAnswer::Close).await;
    probe.answer().await.unwrap();
    let closed = async {
        while probe.is_connected() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, closed).await.unwrap();
}

#[tokio::test]
async fn a_probe_that_was_given_up_is_repeated_with_another_connection() {
    let (server, mut probe, _) = probed(AfterAnswer::Stall).await;
    probe.answer().await.unwrap();
    let stalled = tokio::time::timeout(Duration::from_millis(200), probe.answer()).await;
    assert!(stalled.is_err(), "{stalled:?}");
    probe.answer().await.unwrap();
    let requests = server.requests();
    assert!(matches!(requests[..], [1 | 2, 1]), "{requests:?}");
}

#[test]
fn the_host_of_a_probe_names_only_an_unusual_port() {
    let rows = [
        ("https://blue.example/version", Some("blue.example")),
        ("https://blue.example:443/version", Some("blue.example")),
        ("https://blue.example:6443/version", Some("blue.example:6443")),
        ("https://user@[::1]:6443/version", Some("[::1]:6443")),
        ("/version", None),
    ];
    for (uri, expected) in rows {
        assert_eq!(host(&uri.parse().unwrap()).as_deref(), expected, "{uri}");
    }
}

#[tokio::test]
async fn a_probe_without_an_answer_fails() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("pki"), "test").unwrap();
    let target = target("https://127.0.0.1:1", authority.certificate());
    let requests = RequestCounter::default();
    let TargetClient { mut probe, .. } = client(&target, &options(&requests)).unwrap();
    let failure = probe.answer().await.unwrap_err();
    assert_eq!(failure.category, Category::Unreachable);
    assert!(failure.message.contains("refused"), "{failure}");
    assert_eq!(requests.counts(), [RequestCount { verb: "get", result: "unreachable", count: 1 }]);
}

#[test]
fn a_token_that_no_header_can_contain_is_refused() {
    let auth = Some(TargetAuth::BearerToken("canary\n".to_owned()));
    let target = Target { auth, ..target("https://127.0.0.1:1", "") };
    let failure = headers(&target).unwrap_err();
    assert_eq!(failure.category, Category::InvalidSpec);
    assert!(!failure.message.contains("canary"), "{failure}");
}

/// Reads a file of the server with the default policy.
async fn read_strictly(target: &Target, addresses: &AddressPolicy) -> Failure {
    let options =
        ClientOptions { addresses: Arc::new(addresses.clone()), ..options(&RequestCounter::default()) };
    let TargetClient { client, mut probe, .. } = client(target, &options).unwrap();
    let failure = probe.answer().await.unwrap_err();
    let request = Request::get("/index.yaml").body(Vec::new()).unwrap();
    let read = client.read(request).await.err().unwrap().failure();
    assert_eq!(read, failure);
    read
}

#[tokio::test]
async fn refused_addresses_are_not_connected_to_whatever_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let (_, server) = repository(folder.path()).await;
    let proxy = ConnectProxy::start(None, None).await.unwrap();
    let direct = target(server.url(), server.ca_pem());
    let port = server.url().rsplit_once(':').unwrap().1.to_owned();
    let named = target(&format!("https://localhost:{port}"), server.ca_pem());
    let proxied = through_proxy(&direct, format!("http://{}", proxy.address()), None);
    let policy = AddressPolicy::default();
    for target in [direct.clone(), named, proxied] {
        let failure = read_strictly(&target, &policy).await;
        assert_eq!(failure.category, Category::InvalidSpec, "{failure}");
        assert!(failure.message.contains("a loopback address"), "{failure}");
    }
    assert_eq!(proxy.targets().len(), 0);

    let allowed = AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() };
    assert_eq!(check_addresses(&direct, &allowed), Ok(()));
    assert!(check_addresses(&direct, &policy).is_err());
    let metadata = target("https://169.254.169.254", server.ca_pem());
    let behind_proxy = through_proxy(&metadata, format!("http://{}", proxy.address()), None);
    assert!(check_addresses(&behind_proxy, &allowed).is_err());
    let trusted = AddressPolicy { trusted: vec![proxy.address().to_string()], ..AddressPolicy::default() };
    assert_eq!(check_addresses(&behind_proxy, &trusted), Ok(()), "the hub decides by itself");
    let mut unverified = behind_proxy.clone();
    unverified.tls.insecure_skip_verify = true;
    assert_eq!(check_addresses(&unverified, &trusted), Ok(()));
    let strict = AddressPolicy { refuse_unverified: true, ..trusted };
    assert!(check_addresses(&unverified, &strict).is_err(), "servers are verified through the hub, too");
}
