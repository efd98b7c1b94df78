//! A client of the proxy, which sends requests as client-go does.

use std::net::SocketAddr;

use chandler_hub::TunnelEntry;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::{ENDPOINT, World, within};

/// The response of the proxy, and the connection.
pub struct Response {
    pub status: u16,
    pub head: String,
    pub stream: TcpStream,
}

/// Sends a request and reads the head of the response.
pub async fn send(proxy: SocketAddr, request: &str) -> Response {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.expect("the proxy answers"));
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, stream }
}

/// Requests a connection with these credentials.
pub async fn connect_as(
    proxy: SocketAddr,
    authority: &str,
    credentials: Option<(&str, &SecretString)>,
) -> Response {
    let header = credentials.map_or_else(String::new, |(user, password)| {
        let encoded = base64(format!("{user}:{}", password.expose_secret()).as_bytes());
        format!("Proxy-Authorization: Basic {encoded}\r\n")
    });
    send(proxy, &format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{header}\r\n")).await
}

/// Requests a connection to a cluster with its own credentials.
pub async fn connect(proxy: SocketAddr, world: &World, entry: &TunnelEntry) -> Response {
    let (user, password) = world.credentials(entry);
    connect_as(proxy, ENDPOINT, Some((&user, &password))).await
}

/// Sends bytes and waits until they come back.
pub async fn echo(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    expect(stream, text).await;
}

/// Reads exactly this text.
pub async fn expect(stream: &mut TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    within(stream.read_exact(&mut received)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&received), text);
}

/// Waits until the connection is cut or ended, and returns what came before.
pub async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // A reset is an end as well.
    let _ = within(stream.read_to_end(&mut received)).await;
    received
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes)
}
