//! One request and its response, for blocking readers. The request is sent when its response is read first: then Git has
//! written all of its body.

use std::{
    io::{self, BufRead, Cursor, Read, Write},
    sync::{Arc, Mutex},
};

use bytes::{Buf as _, Bytes};
use reqwest::{
    StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};

use super::connection::{Connection, lock};
use crate::{
    Access, SourceError,
    http::{HttpClient, HttpRequest, HttpResponse},
};

/// A repository over https.
pub(super) struct HttpsRemote {
    pub connection: Connection,
    http: Arc<HttpClient>,
    access: Access,
    authorization: Option<HeaderValue>,
}

impl HttpsRemote {
    pub fn new(
        connection: Connection,
        http: Arc<HttpClient>,
        access: Access,
        authorization: Option<HeaderValue>,
    ) -> Self {
        Self { connection, http, access, authorization }
    }

    fn send(&self, request: Request) -> Result<HttpResponse, SourceError> {
        let Request { url, headers, body } = request;
        let Connection { url: base_url, deadline, .. } = &self.connection;
        let authorization = self.authorization.clone();
        let request = HttpRequest { url, base_url, access: &self.access, authorization, headers };
        let response = self.connection.block_on(async {
            match body {
                None => self.http.get_until(*deadline, request).await,
                Some(body) => self.http.post_body_until(*deadline, request, body).await,
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (url, status_code) = (response.url.to_string(), status.as_u16());
        Err(SourceError::Status { url, status: status_code, hint: hint(status) })
    }
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "the repository needs credentials, or those of spec.credentials may not read it",
        404 | 410 => "the repository does not exist, or the credentials of spec.credentials may not read it",
        407 => "the proxy requires credentials; set them in HTTPS_PROXY of the manager",
        429 => "too many requests; Chandler retries later",
        500..=599 => "the server has an error; Chandler retries later",
        _ => "unexpected status for a Git repository; check its URL",
    }
}

/// A request that is not sent yet.
pub(super) struct Request {
    pub url: Url,
    pub headers: HeaderMap,
    /// `None` for a GET request.
    pub body: Option<Vec<u8>>,
}

enum State {
    Request(Request),
    Response(HttpResponse),
    Failed,
}

/// A request and its response. Clones share them.
#[derive(Clone)]
pub(super) struct Exchange {
    remote: Arc<HttpsRemote>,
    state: Arc<Mutex<State>>,
}

impl Exchange {
    pub fn new(remote: Arc<HttpsRemote>, request: Request) -> Self {
        Self { remote, state: Arc::new(Mutex::new(State::Request(request))) }
    }

    /// Sends the request unless it was sent, and calls `read` with the response.
    pub fn read<T>(&self, read: impl FnOnce(&mut HttpResponse) -> Result<T, SourceError>) -> io::Result<T> {
        let mut state = lock(&self.state);
        let result = match std::mem::replace(&mut *state, State::Failed) {
            State::Request(request) => self.remote.send(request),
            State::Response(response) => Ok(response),
            State::Failed => return Err(io::Error::other("the request failed")),
        };
        let result = result.and_then(|mut response| {
            let value = read(&mut response)?;
            *state = State::Response(response);
            Ok(value)
        });
        result.map_err(|error| self.remote.connection.fail(error))
    }

    /// Adds to the body of a request that is not sent yet.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        match &mut *lock(&self.state) {
            State::Request(Request { body: Some(body), .. }) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Writes the body of a request.
pub(super) struct RequestBody(pub Exchange);

impl Write for RequestBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the headers of a response, line by line. Git needs only the type of the content.
pub(super) struct ResponseHeaders {
    exchange: Exchange,
    lines: Option<Cursor<Vec<u8>>>,
}

impl ResponseHeaders {
    pub fn new(exchange: Exchange) -> Self {
        Self { exchange, lines: None }
    }

    fn opened(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        let lines = match self.lines.take() {
            Some(lines) => lines,
            None => Cursor::new(self.exchange.read(|response| {
                let content_type = response.header(CONTENT_TYPE).unwrap_or_default();
                Ok(format!("content-type: {content_type}\n").into_bytes())
            })?),
        };
        Ok(self.lines.insert(lines))
    }
}

impl Read for ResponseHeaders {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.opened()?.read(buffer)
    }
}

impl BufRead for ResponseHeaders {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.opened()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Some(lines) = &mut self.lines {
            lines.consume(amount);
        }
    }
}

/// Reads the body of a response.
pub(super) struct ResponseBody {
    exchange: Exchange,
    chunk: Bytes,
    received: u64,
}

impl ResponseBody {
    pub fn new(exchange: Exchange) -> Self {
        Self { exchange, chunk: Bytes::new(), received: 0 }
    }

    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Self { exchange, received, .. } = self;
        let connection = &exchange.remote.connection;
        exchange.read(|response| {
            let chunk = connection.block_on(response.chunk())?;
            *received += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            connection.check_size(*received)?;
            Ok(chunk)
        })
    }
}

impl Read for ResponseBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(buffer.len());
        buffer[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for ResponseBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() {
            match self.next()? {
                Some(chunk) => self.chunk = chunk,
                None => break,
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.advance(amount);
    }
}
