//! Links between network namespaces, with real TCP on both ends.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    time::{Duration, Instant},
};

use chandler_sandbox::{
    netns::{self, NetworkNamespace},
    packet_link::{Conditions, End, PacketLink},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

const SERVER: &str = "198.18.0.2:7";
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// Long enough for several losses in a row.
const LIMIT: Duration = Duration::from_secs(30);

/// Two namespaces with a link, and a server behind it that returns every byte.
struct Linked {
    link: PacketLink,
    client: NetworkNamespace,
    _site: NetworkNamespace,
    _server: AbortOnDropHandle<()>,
}

impl Linked {
    async fn new(conditions: Conditions) -> Self {
        let (client, site) =
            (NetworkNamespace::create("client").unwrap(), NetworkNamespace::create("site").unwrap());
        let ends = [
            End { namespace: Some(&client), interface: "wan", address: "198.18.0.1/30" },
            End { namespace: Some(&site), interface: "wan", address: "198.18.0.2/30" },
        ];
        let link = PacketLink::start(ends, conditions).unwrap();
        let address: SocketAddr = SERVER.parse().unwrap();
        let listener = netns::run_in(site.name(), move || {
            let listener = StdListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = TcpListener::from_std(listener.await.unwrap()).unwrap();
        let server = AbortOnDropHandle::new(tokio::spawn(echo(listener)));
        Self { link, client, _site: site, _server: server }
    }

    async fn connect(&self) -> TcpStream {
        let stream = netns::connect(self.client.name(), SERVER.parse().unwrap(), LIMIT).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut from, mut to) = stream.split();
            // A connection that is reset ends with an error.
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
    }
}

/// Sends bytes and waits until they are back.
async fn exchange(stream: &mut TcpStream, sent: &[u8]) -> io::Result<Vec<u8>> {
    let mut received = vec![0; sent.len()];
    let (mut from, mut to) = stream.split();
    let both = async { tokio::try_join!(to.write_all(sent), from.read_exact(&mut received)).map(drop) };
    timeout(LIMIT, both).await.unwrap()?;
    Ok(received)
}

#[tokio::test]
async fn packets_are_delayed_and_lost_and_tcp_repairs_it() {
    if netns::is_skipped() {
        return;
    }
    let linked = Linked::new(Conditions::new(50, ROUND_TRIP).with_loss(0.05)).await;
    let mut stream = linked.connect().await;
    let started = Instant::now();
    exchange(&mut stream, b"ping").await.unwrap();
    let took = started.elapsed();
    assert!(took >= ROUND_TRIP, "a round trip took {took:?}");

    let sent: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    assert!(exchange(&mut stream, &sent).await.unwrap() == sent, "what came back differs");
    let counts = linked.link.counts();
    // 400 kB take about 280 packets in each direction.
    assert!(counts.lost >= 5 && counts.lost < counts.delivered, "{counts:?}");
}

#[tokio::test]
async fn broken_connections_are_reset_or_silent_and_new_ones_work() {
    if netns::is_skipped() {
        return;
    }
    let linked = Linked::new(Conditions::new(50, ROUND_TRIP)).await;
    let mut stream = linked.connect().await;
    exchange(&mut stream, b"ping").await.unwrap();
    linked.link.reset_connections();
    let error = exchange(&mut stream, b"ping").await.unwrap_err();
    let expected = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(expected.contains(&error.kind()), "{error:?}");

    let mut stream = linked.connect().await;
    exchange(&mut stream, b"ping").await.unwrap();
    linked.link.forget_connections();
    stream.write_all(b"ping").await.unwrap();
    let silence = timeout(ROUND_TRIP * 10, stream.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");
    exchange(&mut linked.connect().await, b"ping").await.unwrap();
}
