//! TCP connections to a hub: direct, or through an HTTP proxy with CONNECT.

use std::{fmt, io, str::FromStr, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The answer of a proxy to CONNECT is shorter.
const MAX_ANSWER: usize = 8 << 10;

/// An HTTP proxy: `http://[USER:PASSWORD@]HOST[:PORT]`.
#[derive(Clone, Debug)]
pub struct HttpProxy {
    /// `HOST:PORT`.
    address: String,
    /// The value of `Proxy-Authorization`.
    authorization: Option<SecretString>,
}

/// Why the proxy in the configuration cannot be used. The messages do not contain the URL, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxy {
    #[error("the proxy is not an `http://HOST:PORT` URL; other kinds of proxies are not supported")]
    Scheme,
    #[error("the URL of the proxy has no host, or a port that is not a number")]
    Address,
    #[error("the user or password in the URL of the proxy is not percent-encoded UTF-8")]
    Login,
}

/// Why there is no connection to a hub.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("{0} is not reachable: {1}")]
    Connect(String, io::Error),
    #[error("{address} did not answer within {} s; a firewall may drop the packets", limit.as_secs_f64())]
    Timeout { address: String, limit: Duration },
    #[error("the connection to the proxy {0} broke: {1}")]
    Proxy(String, io::Error),
    #[error("the proxy {0} requires a user and a password, or refuses those in the configuration")]
    ProxyLogin(String),
    #[error("the proxy {proxy} refuses the connection to {hub}: {status}; allow it there")]
    ProxyRefused { proxy: String, hub: String, status: String },
    #[error("the proxy {0} does not answer as an HTTP proxy")]
    NoProxy(String),
}

impl FromStr for HttpProxy {
    type Err = InvalidProxy;

    fn from_str(url: &str) -> Result<Self, InvalidProxy> {
        let rest = url.strip_prefix("http://").ok_or(InvalidProxy::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, address) = match rest.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, rest),
        };
        let authorization = login.map(authorization).transpose()?;
        Ok(Self { address: with_port(address)?, authorization })
    }
}

impl fmt::Display for HttpProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)
    }
}

fn authorization(login: &str) -> Result<SecretString, InvalidProxy> {
    let decode = |text| percent_decode_str(text).decode_utf8().map_err(|_| InvalidProxy::Login);
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let login = format!("{}:{}", decode(user)?, decode(password)?);
    Ok(format!("Basic {}", BASE64_STANDARD.encode(login)).into())
}

/// Returns `HOST:PORT`, with the port of HTTP if there is none.
fn with_port(address: &str) -> Result<String, InvalidProxy> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', ' ']);
    // The colons in the brackets of an IPv6 address separate no port.
    let port = address.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    match port {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(address.to_owned()),
        None if is_host(address) => Ok(format!("{address}:80")),
        _ => Err(InvalidProxy::Address),
    }
}

/// Connects to `hub` (`HOST:PORT`) within the limit.
pub async fn dial(hub: &str, proxy: Option<&HttpProxy>, limit: Duration) -> Result<TcpStream, DialError> {
    let first = proxy.map_or(hub, |proxy| &proxy.address);
    let dialing = async {
        let mut stream =
            TcpStream::connect(first).await.map_err(|error| DialError::Connect(first.to_owned(), error))?;
        // Without it, small packets of a request wait for the acknowledgment of earlier ones.
        stream.set_nodelay(true).map_err(|error| DialError::Connect(first.to_owned(), error))?;
        if let Some(proxy) = proxy {
            connect_through(&mut stream, proxy, hub).await?;
        }
        Ok(stream)
    };
    let timed_out = |_| Err(DialError::Timeout { address: first.to_owned(), limit });
    timeout(limit, dialing).await.unwrap_or_else(timed_out)
}

/// Asks a proxy for a connection to `hub`.
async fn connect_through(stream: &mut TcpStream, proxy: &HttpProxy, hub: &str) -> Result<(), DialError> {
    let broken = |error| DialError::Proxy(proxy.address.clone(), error);
    let login = proxy.authorization.as_ref().map_or_else(String::new, |authorization| {
        format!("Proxy-Authorization: {}\r\n", authorization.expose_secret())
    });
    let request = format!("CONNECT {hub} HTTP/1.1\r\nHost: {hub}\r\n{login}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let head = read_head(stream).await.map_err(broken)?;
    match parse_status(&head) {
        Some((200..=299, _)) => Ok(()),
        Some((407, _)) => Err(DialError::ProxyLogin(proxy.address.clone())),
        Some((_, status)) => Err(DialError::ProxyRefused {
            proxy: proxy.address.clone(),
            hub: hub.to_owned(),
            status: status.to_owned(),
        }),
        None => Err(DialError::NoProxy(proxy.address.clone())),
    }
}

/// Reads until the end of the head, and not one byte more: what follows belongs to the hub.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer to CONNECT is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Returns the status code of an answer, and the status with its text.
fn parse_status(head: &str) -> Option<(u16, &str)> {
    let line = head.lines().next()?;
    let (version, status) = line.split_once(' ')?;
    let code = status.split(' ').next()?.parse().ok()?;
    version.starts_with("HTTP/1.").then_some((code, status.trim()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn proxies_are_parsed() {
        let rows = [
            ("http://proxy:3128", Ok(("proxy:3128", None))),
            ("http://proxy", Ok(("proxy:80", None))),
            ("http://proxy:3128/", Ok(("proxy:3128", None))),
            ("http://[fd00::1]:3128", Ok(("[fd00::1]:3128", None))),
            ("http://[fd00::1]", Ok(("[fd00::1]:80", None))),
            ("http://a:b@proxy:3128", Ok(("proxy:3128", Some("a:b")))),
            ("http://a:b%40c@proxy:3128", Ok(("proxy:3128", Some("a:b@c")))),
            ("http://a@proxy:3128", Ok(("proxy:3128", Some("a:")))),
            ("http://a:%ff@proxy:3128", Err(InvalidProxy::Login)),
            ("https://proxy:3128", Err(InvalidProxy::Scheme)),
            ("proxy:3128", Err(InvalidProxy::Scheme)),
            ("http://", Err(InvalidProxy::Address)),
            ("http://proxy:port", Err(InvalidProxy::Address)),
            ("http://proxy:3128/path", Err(InvalidProxy::Address)),
        ];
        for (url, expected) in rows {
            let parsed = url.parse::<HttpProxy>();
            let parsed = parsed.as_ref().map(|proxy| {
                let login = proxy.authorization.as_ref().map(|value| value.expose_secret().to_owned());
                (proxy.address.as_str(), login)
            });
            let expected = expected.map(|(address, login)| {
                (address, login.map(|login| format!("Basic {}", BASE64_STANDARD.encode(login))))
            });
            assert_eq!(parsed.map_err(|error| *error), expected, "{url}");
        }
    }

    #[test]
    fn the_login_is_not_shown() {
        let proxy: HttpProxy = "http://user:hunter2@proxy:3128".parse().unwrap();
        for shown in [format!("{proxy}"), format!("{proxy:?}")] {
            assert!(!shown.contains("hunter2") && !shown.contains("dXNlcj"), "{shown}");
        }
    }

    #[test]
    fn answers_of_proxies_are_parsed() {
        let rows = [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some((200, "200 Connection established"))),
            ("HTTP/1.0 403 Forbidden\r\nServer: x\r\n\r\n", Some((403, "403 Forbidden"))),
            ("HTTP/1.1 502\r\n\r\n", Some((502, "502"))),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
            ("HTTP/2 200\r\n\r\n", None),
        ];
        for (head, expected) in rows {
            assert_eq!(parse_status(head), expected, "{head}");
        }
    }
}
