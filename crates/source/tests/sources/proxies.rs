//! Through a forward proxy.

use chandler_sandbox::repository::ChartRepository;
use chandler_source::{AddressPolicy, ProxyMatcher, SourceOptions};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::TcpStream,
};

use crate::{
    forwarder::{Forwarder, Seen},
    world::{World, failure, get, options},
};

/// A proxy that knows CONNECT, and for whom a name is what it says; it notes first lines.
async fn serve(stream: TcpStream, target: String, log: Seen) {
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
        // The proxy itself is the operator's word; what it is asked for is not.
        addresses: AddressPolicy::default(),
        proxies: ProxyMatcher::builder().https(url).no(except).build(),
        ..options()
    }
}

#[tokio::test]
async fn https_goes_through_the_proxy_unless_told_otherwise() {
    let world = World::new();
    let repository = ChartRepository::start(&world.authority, &world.path("served")).await.unwrap();
    repository.publish(&world.chart("web")).unwrap();
    let (host, port) = repository.url().trim_start_matches("https://").split_once(':').unwrap();
    let proxy = Forwarder::start(format!("{host}:{port}"), serve).await;

    let mut access = world.access();
    // The name on the certificate is another; the proxy alone knows where it leads.
    access.insecure_skip_tls_verify = true;
    let url = format!("https://charts.example:{port}");
    get(&world.packages_with(through(&proxy, "")), &url, &access).await.unwrap();
    let seen = proxy.seen();
    assert!(
        seen.iter().all(|(line, _)| line == &format!("CONNECT charts.example:{port} HTTP/1.1")),
        "{seen:?}"
    );
    // pass:word
    assert!(seen.iter().all(|(_, sent)| sent.as_deref() == Some("Basic cGFzczp3b3Jk")), "{seen:?}");

    let before = proxy.seen().len();
    let direct = SourceOptions { addresses: options().addresses, ..through(&proxy, "127.0.0.1") };
    get(&World::new().packages_with(direct), repository.url(), &world.access()).await.unwrap();
    assert_eq!(proxy.seen().len(), before, "NO_PROXY is kept");
}

#[tokio::test]
async fn a_proxy_is_not_asked_for_what_is_refused() {
    let world = World::new();
    let proxy = Forwarder::start("127.0.0.1:1".to_owned(), serve).await;
    let packages = world.packages_with(through(&proxy, ""));
    for url in
        ["https://127.0.0.1/x", "https://169.254.169.254", "https://localhost:1", "https://x.localhost"]
    {
        let message = failure(get(&packages, url, &world.access()).await);
        assert!(message.starts_with("InvalidSpec"), "{message}");
    }
    assert!(proxy.seen().is_empty());
}
