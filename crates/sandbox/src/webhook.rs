//! Sends webhooks as Git hosts do.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a webhook over HTTP. `header` is the line that proves that the sender knows the secret. Returns the status line of
/// the response.
pub async fn post(address: &str, path: &str, header: &str, body: &str) -> io::Result<String> {
    tokio::time::timeout(TIMEOUT, exchange(address, path, header, body)).await?
}

async fn exchange(address: &str, path: &str, header: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: hooks\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.lines().next().unwrap_or_default().to_owned())
}
