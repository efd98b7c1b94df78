//! Joins an installation: asks a hub to sign a certificate for the key of the agent.

use std::{io, time::Duration};

use chandler_tunnel::{
    HubEndpoint,
    authority::{AuthorityError, CertificateAndKey, certificate_request},
    join_message::{JOIN_PATH, JoinRefusal, JoinRequest, JoinResponse, MAX_JOIN_BYTES},
    tls::Protocol,
};
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    connect::{ConnectError, connect},
    dial::HttpProxy,
    state::StateError,
};

/// How long the hub may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The longest head of an answer, and the longest message of the hub that is shown.
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_MESSAGE_CHARS: usize = 300;

/// Why the agent has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the hub {0} did not answer the request to join: {1}")]
    Broken(String, io::Error),
    #[error("the hub {0} did not answer the request to join within {limit} s", limit = ANSWER_LIMIT.as_secs())]
    Timeout(String),
    #[error(
        "the hub {0} does not accept the join token or the certificate: {1}; copy the current agent.yaml from the Secret of the \
         tunnel (`chandler tunnel describe` names it)"
    )]
    Refused(String, String),
    #[error("the hub {0} cannot let the agent join now ({1}): {2}")]
    NotNow(String, u16, String),
    #[error("the answer of the hub {0} to the request to join cannot be read")]
    Answer(String),
    #[error(
        "the hub {0} has signed a certificate for another tunnel or key; is its address that of another installation?"
    )]
    Foreign(String),
    #[error("the hub {0} has signed a certificate that is valid until {1}, and no hub signs one for so long")]
    Validity(String, Timestamp),
    #[error("{message}; the next attempt is in {seconds} s at the latest")]
    HeldBack { message: String, seconds: u64 },
    #[error(
        "the CA bundle of the hub {0} cannot be read; copy agent.yaml from the Secret of the tunnel again"
    )]
    Bundle(String),
    #[error("the private key cannot be used: {0}; remove key.pem to let the agent create another")]
    Key(#[from] AuthorityError),
    #[error(transparent)]
    State(#[from] StateError),
}

impl JoinError {
    /// Returns whether the hub has answered and refused: the same request will be refused again for a while.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(..) | Self::NotNow(..) | Self::Foreign(_) | Self::Validity(..))
    }
}

/// Asks for a certificate for `key`, and returns it in PEM: with the token of the hub's entry, or with the certificate that is to
/// be renewed.
pub async fn join(
    hub: &HubEndpoint,
    key: &SecretString,
    renewed: Option<&CertificateAndKey>,
    proxy: Option<&HttpProxy>,
) -> Result<String, JoinError> {
    let token = renewed.is_none().then(|| hub.token.clone());
    let request = JoinRequest { token, csr: certificate_request(key)? };
    let mut stream = connect(hub, proxy, renewed, Protocol::Join).await?;
    let exchange = async {
        stream.write_all(&post(&hub.address, &request)?).await?;
        stream.flush().await?;
        read_answer(&mut stream).await
    };
    let broken = |error| JoinError::Broken(hub.address.clone(), error);
    let answer = match timeout(ANSWER_LIMIT, exchange).await {
        Ok(answer) => answer.map_err(broken)?,
        Err(_) => return Err(JoinError::Timeout(hub.address.clone())),
    };
    match answer.status {
        200 => serde_json::from_slice::<JoinResponse>(&answer.body)
            .map(|response| response.certificate)
            .map_err(|_| JoinError::Answer(hub.address.clone())),
        401 | 403 => Err(JoinError::Refused(hub.address.clone(), message(&answer.body))),
        status => Err(JoinError::NotNow(hub.address.clone(), status, message(&answer.body))),
    }
}

/// Returns the bytes of the request.
fn post(host: &str, request: &JoinRequest) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(request)?;
    let head = format!(
        "POST {JOIN_PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    Ok([head.into_bytes(), body].concat())
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let mut read = Vec::with_capacity(4 << 10);
    loop {
        if let Some(answer) = parse(&read)? {
            return Ok(answer);
        }
        if read.len() > MAX_HEAD_BYTES + MAX_JOIN_BYTES {
            return Err(invalid("the answer is too long"));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Parses an answer with a `Content-Length`. Returns `None` if more bytes are needed.
fn parse(read: &[u8]) -> io::Result<Option<Answer>> {
    let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&read[..end]).map_err(|_| invalid("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.and_then(|status| status.split(' ').next()?.parse().ok());
    let status = status.ok_or_else(|| invalid("it is not an answer of HTTP/1.1"))?;
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.filter(|length| *length <= MAX_JOIN_BYTES);
    let length = length.ok_or_else(|| invalid("it has no length, or too large a one"))?;
    let body = &read[end + 4..];
    Ok(body.get(..length).map(|body| Answer { status, body: body.to_vec() }))
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns the message in a refusal, fit for a log.
fn message(body: &[u8]) -> String {
    let text = serde_json::from_slice::<JoinRefusal>(body)
        .map_or_else(|_| String::from_utf8_lossy(body).into_owned(), |refusal| refusal.message);
    let text: String = text.trim().chars().filter(|character| !character.is_control()).collect();
    if text.is_empty() {
        "no reason given".to_owned()
    } else {
        text.chars().take(MAX_MESSAGE_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn answers_are_parsed_when_they_are_complete() {
        let answer = |status, body: &str| Some(Answer { status, body: body.as_bytes().to_vec() });
        let rows = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Ok(answer(200, "{}"))),
            ("HTTP/1.1 429 \r\ncontent-length:0\r\n\r\n", Ok(answer(429, ""))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", Ok(None)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", Ok(None)),
            ("", Ok(None)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", Err(())),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Err(())),
            ("SSH-2.0\r\n\r\n", Err(())),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text.as_bytes()).map_err(drop), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_is_cut_off() {
        let mut endless = tokio::io::repeat(b'x');
        assert_eq!(read_answer(&mut endless).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn messages_of_the_hub_are_short_and_printable() {
        let long = "x".repeat(1_000);
        let rows = [
            (r#"{"message":"the join token has expired"}"#, "the join token has expired"),
            ("not\x1b[31m found\r\n", "not[31m found"),
            ("", "no reason given"),
            (&long, &long[..MAX_MESSAGE_CHARS]),
        ];
        for (body, expected) in rows {
            assert_eq!(message(body.as_bytes()), expected);
        }
    }

    #[test]
    fn the_request_has_the_length_of_its_body() {
        let request = JoinRequest { token: Some("v1.token".into()), csr: "PEM".to_owned() };
        let text = String::from_utf8(post("hub:443", &request).unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /join HTTP/1.1\r\nHost: hub:443\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert_eq!(body, r#"{"token":"v1.token","csr":"PEM"}"#);
    }
}
