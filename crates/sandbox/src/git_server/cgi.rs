//! Runs `git http-backend` for one request, by the rules of CGI.

use std::io;
use std::path::Path;
use std::process::Stdio;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, Response, Uri};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Returns the response to a request for a repository in `folder`.
pub(super) async fn run(
    folder: &Path,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> io::Result<Response<Body>> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", method.as_str())
        .env("CONTENT_TYPE", header(CONTENT_TYPE.as_str()))
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // It may exit without reading the body, for example if the repository does not exist.
        let _ = input.write_all(body).await;
    }
    let output = child.wait_with_output().await?;
    response(&output.stdout)
}

/// Parses the output of a CGI program: headers, an empty line and the body.
fn response(output: &[u8]) -> io::Result<Response<Body>> {
    let end = output.windows(4).position(|part| part == b"\r\n\r\n");
    let (head, body) =
        end.map(|end| (&output[..end], &output[end + 4..])).ok_or(io::ErrorKind::InvalidData)?;
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(head).lines() {
        let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        let value = value.trim();
        response = if name.eq_ignore_ascii_case("status") {
            response.status(value.split(' ').next().unwrap_or_default())
        } else {
            response.header(name, value)
        };
    }
    response.body(Body::from(body.to_vec())).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_a_header() {
        let missing = response(b"Status: 404 Not Found\r\nExpires: never\r\n\r\n").unwrap();
        assert_eq!(
            (missing.status().as_u16(), &missing.headers()["expires"]),
            (404, &"never".parse().unwrap())
        );
        let found = response(b"Content-Type: text/plain\r\n\r\nbody").unwrap();
        assert_eq!(found.status().as_u16(), 200);
        assert!(response(b"nonsense").is_err());
    }
}
