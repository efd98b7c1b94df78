//! Compacts the history of an etcd, through its JSON gateway on its Unix socket.

use std::{fs::File, os::fd::AsRawFd as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

const SOCKET: &str = "etcd.sock:0";
const DEADLINE: Duration = Duration::from_secs(10);

/// Removes all revisions but the current one from the etcd of a control plane.
pub async fn compact(dir: &Path) -> Result<()> {
    let status = call(dir, "/v3/maintenance/status", &json!({})).await?;
    let revision = status["header"]["revision"].as_str().context("etcd did not return its revision")?;
    call(dir, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await?;
    Ok(())
}

async fn call(dir: &Path, path: &str, body: &Value) -> Result<Value> {
    let request = request(path, &body.to_string());
    let response = timeout(DEADLINE, exchange(dir, &request)).await;
    let response = response.with_context(|| format!("{path}: no answer within {DEADLINE:?}"))??;
    parse_response(&response).with_context(|| format!("calling {path} of etcd"))
}

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn exchange(dir: &Path, request: &str) -> Result<String> {
    // The path of a socket is limited to 107 characters; that of an open folder is short.
    let folder = File::open(dir).with_context(|| format!("opening {}", dir.display()))?;
    let socket = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    let mut stream = UnixStream::connect(socket).await.context("connecting to etcd")?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

fn parse_response(response: &str) -> Result<Value> {
    let (head, body) = response.split_once("\r\n\r\n").context("the response has no body")?;
    if head.split_ascii_whitespace().nth(1) != Some("200") {
        bail!("etcd answered: {response}");
    }
    Ok(serde_json::from_str(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_responses_are_used() {
        let body = r#"{"header":{"revision":"12"}}"#;
        let answer = parse_response(&format!("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{body}")).unwrap();
        assert_eq!(answer["header"]["revision"], "12");
        parse_response(&format!("HTTP/1.0 400 Bad Request\r\n\r\n{body}")).unwrap_err();
        parse_response("HTTP/1.0 200 OK").unwrap_err();
    }
}
