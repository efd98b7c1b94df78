//! Sources behind an HTTP proxy.

use chandler_sandbox::repository::ChartRepository;
use chandler_source::{AddressPolicy, ProxyMatcher, SourceOptions};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::TcpStream,
};

use super::forwarder::{Forwarder, Requests};
use crate::support::env::{TestEnv, failure, get, options};

/// Serves CONNECT requests, and records their first lines. Every host leads to `target`.
async fn serve(stream: TcpStream, target: String, log: Requests) {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let authorization = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned())
    });
    log.lock().unwrap().push((head[0].clone(), authorization));
    let mut upstream = TcpStream::connect(target).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut upstream).await;
}

fn through(proxy: &Forwarder, except: &str) -> SourceOptions {
    let url = format!("http://pass:word@127.0.0.1:{}", proxy.port);
    SourceOptions {
        // The policy does not apply to the proxy itself, which the operator chooses.
        addresses: AddressPolicy::default(),
        proxies: ProxyMatcher::builder().https(url).no(except).build(),
        ..options()
    }
}

#[tokio::test]
async fn https_uses_the_proxy_unless_no_proxy_matches() {
    let env = TestEnv::new();
    let repository = ChartRepository::start(&env.authority, &env.path("served")).await.unwrap();
    repository.publish(&env.chart("web")).unwrap();
    let (host, port) = repository.url().trim_start_matches("https://").split_once(':').unwrap();
    let proxy = Forwarder::start(format!("{host}:{port}"), serve).await;

    let mut access = env.access();
    // The certificate is for another name: only the proxy knows the target.
    access.insecure_skip_tls_verify = true;
    let url = format!("https://charts.example:{port}");
    get(&env.packages_with(through(&proxy, "")), &url, &access).await.unwrap();
    let requests = proxy.requests();
    assert!(
        requests.iter().all(|(line, _)| line == &format!("CONNECT charts.example:{port} HTTP/1.1")),
        "{requests:?}"
    );
    // pass:word
    assert!(requests.iter().all(|(_, sent)| sent.as_deref() == Some("Basic cGFzczp3b3Jk")), "{requests:?}");

    let before = proxy.requests().len();
    let direct = SourceOptions { addresses: options().addresses, ..through(&proxy, "127.0.0.1") };
    get(&TestEnv::new().packages_with(direct), repository.url(), &env.access()).await.unwrap();
    assert_eq!(proxy.requests().len(), before, "NO_PROXY is respected");
}

#[tokio::test]
async fn refused_addresses_are_not_requested_from_the_proxy() {
    let env = TestEnv::new();
    let proxy = Forwarder::start("127.0.0.1:1".to_owned(), serve).await;
    let packages = env.packages_with(through(&proxy, ""));
    for url in
        ["https://127.0.0.1/x", "https://169.254.169.254", "https://localhost:1", "https://x.localhost"]
    {
        let message = failure(get(&packages, url, &env.access()).await);
        assert!(message.starts_with("InvalidSpec"), "{message}");
    }
    assert!(proxy.requests().is_empty());
}
