//! The requests of the hub's proxy: HTTP/1.1 `CONNECT` with user and password.

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::http_head::{Head, HeadError};

/// The longest message of an answer, in characters.
const MAX_MESSAGE_CHARS: usize = 512;

/// User and password of the scheme `Basic`.
#[derive(Clone, Debug)]
pub struct BasicCredentials {
    pub user: String,
    pub password: SecretString,
}

/// A request to open a connection.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// `HOST:PORT` that the client wants to reach.
    pub authority: String,
    /// `None` if the client has sent none, or none that can be read: the answer is 407.
    pub credentials: Option<BasicCredentials>,
}

/// Why a request cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The client does not wait for an answer any more.
    #[error("the client closed the connection before the end of its request")]
    Closed,
    #[error("the request cannot be read: {0}")]
    Io(#[source] io::Error),
    #[error("the request is not HTTP/1.1")]
    Malformed,
    #[error("the head of the request is too large")]
    TooLarge,
    #[error("only CONNECT HOST:PORT is served here")]
    NotConnect,
}

impl ConnectError {
    /// Returns the status of the answer, or `None` if the client does not wait for one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Closed | Self::Io(_) => None,
            Self::Malformed => Some(400),
            Self::NotConnect => Some(405),
            Self::TooLarge => Some(431),
        }
    }
}

impl From<HeadError> for ConnectError {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Closed => Self::Closed,
            HeadError::TooLarge => Self::TooLarge,
            HeadError::Malformed => Self::Malformed,
            HeadError::Io(error) => Self::Io(error),
        }
    }
}

/// Reads a request. Also returns the bytes after it that were read with it, which belong to the opened connection.
///
/// The caller sets the deadline.
pub async fn read_connect<R: AsyncRead + Unpin>(io: &mut R) -> Result<(ConnectRequest, Bytes), ConnectError> {
    let (head, early) = Head::read(io).await?;
    let parts: Vec<_> = head.start_line().split(' ').collect();
    let [method, authority, version] = parts[..] else {
        return Err(ConnectError::Malformed);
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(ConnectError::Malformed);
    }
    if method != "CONNECT" || !is_authority(authority) {
        return Err(ConnectError::NotConnect);
    }
    let mut values = head.values("proxy-authorization");
    let credentials = values.next().and_then(basic_credentials);
    // Two headers are a mistake or an attempt to confuse: neither is used.
    let credentials = if values.next().is_some() { None } else { credentials };
    Ok((ConnectRequest { authority: authority.to_owned(), credentials }, early))
}

/// Answers that the connection is open.
pub async fn write_established<W: AsyncWrite + Unpin>(io: &mut W) -> io::Result<()> {
    io.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    io.flush().await
}

/// Refuses a request. The message is also the reason phrase, because Go's client shows nothing else of the answer.
pub async fn write_refusal<W: AsyncWrite + Unpin>(io: &mut W, status: u16, message: &str) -> io::Result<()> {
    let message: String = message
        .chars()
        .map(|char| if char.is_ascii() && !char.is_control() { char } else { ' ' })
        .take(MAX_MESSAGE_CHARS)
        .collect();
    let challenge = if status == 407 { "Proxy-Authenticate: Basic realm=\"chandler\"\r\n" } else { "" };
    let answer = format!(
        "HTTP/1.1 {status} {message}\r\n{challenge}Content-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{message}\n",
        message.len() + 1
    );
    io.write_all(answer.as_bytes()).await?;
    io.shutdown().await
}

fn is_authority(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let valid_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    !host.is_empty() && valid_host && port.parse::<u16>().is_ok_and(|number| number.to_string() == port)
}

fn basic_credentials(value: &str) -> Option<BasicCredentials> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(BasicCredentials { user: user.to_owned(), password: password.into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    async fn read(text: &str) -> Result<(ConnectRequest, Bytes), ConnectError> {
        read_connect(&mut text.as_bytes()).await
    }

    #[tokio::test]
    async fn request_of_a_client_is_read() {
        let encoded = STANDARD.encode("ships.web:pass:word");
        let (request, early) = read(&format!(
            "CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: 10.0.0.1:6443\r\nUser-Agent: Go-http-client/1.1\r\n\
             proxy-authorization: basic {encoded}\r\n\r\nearly"
        ))
        .await
        .unwrap();
        assert_eq!(request.authority, "10.0.0.1:6443");
        assert!(!format!("{request:?}").contains("pass:word"));
        let credentials = request.credentials.unwrap();
        assert_eq!(credentials.user, "ships.web");
        assert_eq!(credentials.password.expose_secret(), "pass:word");
        assert_eq!(&early[..], b"early");
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_read_are_none() {
        let valid = format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode("a.b:c"));
        for headers in [
            "",
            "Proxy-Authorization: Basic\r\n",
            "Proxy-Authorization: Basic ***\r\n",
            "Proxy-Authorization: Bearer YTpi\r\n",
            "Proxy-Authorization: Basic YWI=\r\n",
            "Authorization: Basic YTpi\r\n",
            &valid.repeat(2),
        ] {
            let (request, _) = read(&format!("CONNECT a:1 HTTP/1.1\r\n{headers}\r\n")).await.unwrap();
            assert!(request.credentials.is_none(), "{headers}");
        }
        let (request, _) = read(&format!("CONNECT a:1 HTTP/1.1\r\n{valid}\r\n")).await.unwrap();
        assert!(request.credentials.is_some());
    }

    #[tokio::test]
    async fn other_requests_are_refused_with_a_status() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT / HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT a HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT a:0x1 HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT a:99999 HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT :1 HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT a@b:1 HTTP/1.1\r\n\r\n", Some(405)),
            ("CONNECT a:1 HTTP/2\r\n\r\n", Some(400)),
            ("CONNECT  a:1 HTTP/1.1\r\n\r\n", Some(400)),
            ("\r\n\r\n", Some(400)),
            ("CONNECT a:1", None),
            ("", None),
        ] {
            assert_eq!(read(request).await.unwrap_err().status(), status, "{request:?}");
        }
        assert!(read("CONNECT [fd00::1]:6443 HTTP/1.1\r\n\r\n").await.is_ok());
    }

    #[tokio::test]
    async fn refusal_has_the_message_in_its_reason_phrase() {
        let mut answer = Vec::new();
        write_refusal(&mut answer, 503, "no agent is connected;\r\nlast seen never").await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 no agent is connected;  last seen never\r\n"), "{answer}");
        let mut answer = Vec::new();
        write_refusal(&mut answer, 407, "user and password are required").await.unwrap();
        assert!(String::from_utf8(answer).unwrap().contains("\r\nProxy-Authenticate: Basic realm="));
    }

    proptest! {
        #[test]
        fn reading_does_not_panic(content in proptest::collection::vec(any::<u8>(), 0..600)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read_connect(&mut &content[..]));
            let head = [b"CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: ", &content[..], b"\r\n\r\n"].concat();
            let _ = runtime.block_on(read_connect(&mut &head[..]));
        }
    }
}
