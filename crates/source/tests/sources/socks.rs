//! Sources behind a SOCKS proxy.

use chandler_sandbox::repository::ChartRepository;
use chandler_source::{AddressPolicy, ProxyMatcher, SourceOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
};

use super::forwarder::{Forwarder, Requests};
use crate::support::env::{TestEnv, failure, get, options};

fn through(socks: &Forwarder, scheme: &str, login: &str) -> SourceOptions {
    let url = format!("{scheme}://{login}127.0.0.1:{}", socks.port);
    SourceOptions {
        addresses: AddressPolicy::default(),
        proxies: ProxyMatcher::builder().all(url).build(),
        ..options()
    }
}

/// Serves SOCKS 5 (RFC 1928), optionally with user name and password (RFC 1929).
async fn serve(mut stream: TcpStream, target: String, log: Requests) {
    let methods = read_field(&mut stream, 1).await;
    let login = if methods.contains(&2) {
        stream.write_all(&[5, 2]).await.unwrap();
        let user = read_field(&mut stream, 1).await;
        let password = read_field(&mut stream, 0).await;
        stream.write_all(&[1, 0]).await.unwrap();
        Some(String::from_utf8([user, password].join(&b':')).unwrap())
    } else {
        stream.write_all(&[5, 0]).await.unwrap();
        None
    };
    let mut request = [0; 4];
    stream.read_exact(&mut request).await.unwrap();
    let host = match request[3] {
        1 => {
            let mut address = [0; 4];
            stream.read_exact(&mut address).await.unwrap();
            std::net::Ipv4Addr::from(address).to_string()
        }
        3 => String::from_utf8(read_field(&mut stream, 0).await).unwrap(),
        kind => panic!("unsupported address type {kind}"),
    };
    let port = stream.read_u16().await.unwrap();
    log.lock().unwrap().push((format!("{host}:{port}"), login));
    let mut upstream = TcpStream::connect(target).await.unwrap();
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut upstream).await;
}

/// Skips some bytes, and reads a field that is prefixed with its length.
async fn read_field(stream: &mut TcpStream, skipped: usize) -> Vec<u8> {
    stream.read_exact(&mut vec![0; skipped]).await.unwrap();
    let mut bytes = vec![0; stream.read_u8().await.unwrap().into()];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn the_proxy_resolves_names_and_may_require_credentials() {
    let env = TestEnv::new();
    let repository = ChartRepository::start(&env.authority, &env.path("served")).await.unwrap();
    repository.publish(&env.chart("web")).unwrap();
    let (host, port) = repository.url().trim_start_matches("https://").split_once(':').unwrap();
    let socks = Forwarder::start(format!("{host}:{port}"), serve).await;
    let mut access = env.access();
    // The certificate is for another name: only the proxy knows the target.
    access.insecure_skip_tls_verify = true;
    let url = format!("https://charts.invalid:{port}");
    for (login, sent) in [("", None), ("pass:w%40rd@", Some("pass:w@rd".to_owned()))] {
        let other_env = TestEnv::new();
        get(&other_env.packages_with(through(&socks, "socks5h", login)), &url, &access).await.unwrap();
        assert_eq!(socks.requests().last(), Some(&(format!("charts.invalid:{port}"), sent)));
    }
}

#[tokio::test]
async fn refused_addresses_are_not_requested_from_the_proxy() {
    let env = TestEnv::new();
    let socks = Forwarder::start("127.0.0.1:1".to_owned(), serve).await;
    for scheme in ["socks5", "socks5h"] {
        let packages = env.packages_with(through(&socks, scheme, ""));
        for url in ["https://127.0.0.1/x", "https://169.254.169.254", "https://localhost:1"] {
            let message = failure(get(&packages, url, &env.access()).await);
            assert!(message.starts_with("InvalidSpec"), "{scheme}: {message}");
        }
    }
    assert!(socks.requests().is_empty());
}
