//! Through a SOCKS proxy.

use chandler_sandbox::repository::ChartRepository;
use chandler_source::{AddressPolicy, ProxyMatcher, SourceOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
};

use crate::{
    forwarder::{Forwarder, Seen},
    world::{World, failure, get, options},
};

fn through(socks: &Forwarder, scheme: &str, login: &str) -> SourceOptions {
    let url = format!("{scheme}://{login}127.0.0.1:{}", socks.port);
    SourceOptions {
        addresses: AddressPolicy::default(),
        proxies: ProxyMatcher::builder().all(url).build(),
        ..options()
    }
}

/// As RFC 1928 and 1929 have it: with a name or an address, and with a login if there is one.
async fn serve(mut stream: TcpStream, target: String, log: Seen) {
    let methods = short(&mut stream, 1).await;
    let login = if methods.contains(&2) {
        stream.write_all(&[5, 2]).await.unwrap();
        let user = short(&mut stream, 1).await;
        let password = short(&mut stream, 0).await;
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
        3 => String::from_utf8(short(&mut stream, 0).await).unwrap(),
        kind => panic!("an address of kind {kind}"),
    };
    let port = stream.read_u16().await.unwrap();
    log.lock().unwrap().push((format!("{host}:{port}"), login));
    let mut upstream = TcpStream::connect(target).await.unwrap();
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut upstream).await;
}

/// Bytes that their number comes before, after `skipped` others.
async fn short(stream: &mut TcpStream, skipped: usize) -> Vec<u8> {
    stream.read_exact(&mut vec![0; skipped]).await.unwrap();
    let mut bytes = vec![0; stream.read_u8().await.unwrap().into()];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn names_are_left_to_the_proxy_which_may_want_a_login() {
    let world = World::new();
    let repository = ChartRepository::start(&world.authority, &world.path("served")).await.unwrap();
    repository.publish(&world.chart("web")).unwrap();
    let (host, port) = repository.url().trim_start_matches("https://").split_once(':').unwrap();
    let socks = Forwarder::start(format!("{host}:{port}"), serve).await;
    let mut access = world.access();
    // The name on the certificate is another; the proxy alone knows where it leads.
    access.insecure_skip_tls_verify = true;
    let url = format!("https://charts.invalid:{port}");
    for (login, told) in [("", None), ("pass:w%40rd@", Some("pass:w@rd".to_owned()))] {
        let fresh = World::new();
        get(&fresh.packages_with(through(&socks, "socks5h", login)), &url, &access).await.unwrap();
        assert_eq!(socks.seen().last(), Some(&(format!("charts.invalid:{port}"), told)));
    }
}

#[tokio::test]
async fn a_proxy_is_not_asked_for_what_is_refused() {
    let world = World::new();
    let socks = Forwarder::start("127.0.0.1:1".to_owned(), serve).await;
    for scheme in ["socks5", "socks5h"] {
        let packages = world.packages_with(through(&socks, scheme, ""));
        for url in ["https://127.0.0.1/x", "https://169.254.169.254", "https://localhost:1"] {
            let message = failure(get(&packages, url, &world.access()).await);
            assert!(message.starts_with("InvalidSpec"), "{scheme}: {message}");
        }
    }
    assert!(socks.seen().is_empty());
}
