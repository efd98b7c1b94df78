//! What hostile API servers answer.

use std::{io, time::Duration};

use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::server::TlsStream;

use super::{Attack, INTERNAL_SECRET};

const JSON: &str = "content-type: application/json\r\n";
/// The pause between two bytes of a slow response.
const PAUSE: Duration = Duration::from_millis(100);
/// How deeply lists are nested.
const DEPTH: usize = 50_000;
/// The number of characters of a long message.
const LONG_MESSAGE: usize = 60_000;

/// Answers a request for the records of releases, or for their watch.
pub(super) async fn records(
    stream: &mut TlsStream<TcpStream>,
    attack: &Attack,
    is_watch: bool,
    path: &str,
) -> io::Result<()> {
    let size = 15 << 20;
    let body = match (attack, is_watch) {
        (Attack::ManyObjects, false) => {
            format!(r#"{{"metadata":{{}},"items":[{}{{}}]}}"#, "{},".repeat(size / 3))
        }
        (Attack::LongVersion, false) => {
            format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[]}}"#, "7".repeat(size))
        }
        (Attack::Text, false) => format!(r#""{INTERNAL_SECRET}""#),
        (Attack::NestedLists, false) => {
            format!(r#"{{"metadata":{{}},"items":[{{"metadata":{{"labels":{}}}}}]}}"#, nested())
        }
        (Attack::EndlessPages, false) => r#"{"metadata":{"continue":"next"},"items":[]}"#.to_owned(),
        (Attack::ManyFields, true) => {
            let fields = "{},".repeat(size / 3);
            let event =
                format!(r#"{{"object":{{"metadata":{{"managedFields":[{fields}{{}}]}}}},"type":"ADDED"}}"#);
            return stream_event(stream, &event).await;
        }
        (Attack::ErrorEvent, true) => {
            let event = format!(r#"{{"type":"ERROR","object":{{"message":"{INTERNAL_SECRET}"}}}}"#);
            return stream_event(stream, &event).await;
        }
        (Attack::UnfinishedLists, false) => return unfinished(stream).await,
        (Attack::SlowLists, false) => return slow(stream).await,
        (Attack::LongErrors, false) => return long_error(stream).await,
        (Attack::LongHeaders, false) => return long_header(stream).await,
        _ => return usual(stream, path).await,
    };
    respond(stream, "200 OK", JSON, &body).await
}

/// Sends all of a list of 16 MiB but its last byte.
async fn unfinished(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let (chunk, chunks) = (vec![b' '; 1 << 16], 256);
    let length = chunk.len() * chunks;
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    for _ in 1..chunks {
        stream.write_all(&chunk).await?;
    }
    stream.write_all(&chunk[1..]).await?;
    stream.flush().await?;
    std::future::pending().await
}

/// Sends an event, and leaves the watch open.
async fn stream_event(stream: &mut TlsStream<TcpStream>, event: &str) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(format!("{:x}\r\n{event}\n\r\n", event.len() + 1).as_bytes()).await?;
    stream.flush().await?;
    std::future::pending().await
}

/// Answers like the API server of an empty cluster.
pub(super) async fn usual(stream: &mut TlsStream<TcpStream>, path: &str) -> io::Result<()> {
    if path.contains("watch=true") {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        return std::future::pending().await;
    }
    let body = if path.starts_with("/version") {
        r#"{"major": "1", "minor": "34", "gitVersion": "v1.34.4"}"#
    } else {
        r#"{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}, "items": []}"#
    };
    respond(stream, "200 OK", JSON, body).await
}

pub(super) async fn respond(
    stream: &mut TlsStream<TcpStream>,
    status: &str,
    headers: &str,
    body: &str,
) -> io::Result<()> {
    let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await
}

/// Sends a body that never ends, and never contains a line.
pub(super) async fn endless(stream: &mut TlsStream<TcpStream>, status: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{{\"items\": [\"\r\n",
        r#"{"items": [""#.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let size = 1 << 20;
    let chunk = [format!("{size:x}\r\n").into_bytes(), vec![b'x'; size], b"\r\n".to_vec()].concat();
    loop {
        stream.write_all(&chunk).await?;
    }
}

/// Sends a list that arrives slowly.
async fn slow(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\n{JSON}content-length: {}\r\n\r\n", 1 << 20);
    stream.write_all(head.as_bytes()).await?;
    loop {
        stream.write_all(b" ").await?;
        stream.flush().await?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends an error that is not too large to be read, with a long message.
async fn long_error(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let message = "x".repeat(LONG_MESSAGE);
    let status = format!(r#"{{"kind":"Status","status":"Failure","code":403,"message":"{message}"}}"#);
    respond(stream, "403 Forbidden", JSON, &status).await
}

/// Sends a response whose header is longer than most bodies.
async fn long_header(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await?;
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..8 {
        stream.write_all(&chunk).await?;
    }
    stream.write_all(b"\r\ncontent-length: 2\r\n\r\n{}").await?;
    stream.flush().await
}

/// Answers requests for the APIs of the server.
pub(super) async fn nested_discovery(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    respond(stream, "200 OK", JSON, &nested()).await
}

/// Returns lists in lists.
fn nested() -> String {
    ["[".repeat(DEPTH), "]".repeat(DEPTH)].concat()
}
