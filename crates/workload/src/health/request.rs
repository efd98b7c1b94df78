//! Requests, whose responses the client limits in size, and the lines of a watch.

use std::mem;

use chandler_core::reachability::ANSWER_TIMEOUT;
use http::{HeaderValue, Request, Response, header::ACCEPT_ENCODING};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Bytes;
use kube::{Client, client::Body, core::Status};

use super::error::WatchError;

/// Maximum size of a response: less than the client allows, because many clusters are listed at the same time. A single object
/// fits, and a page of ordinary ones.
pub const MAX_RESPONSE: usize = 16 << 20;

/// Reads a whole response.
pub async fn read(client: &Client, request: Request<Vec<u8>>) -> Result<Vec<u8>, WatchError> {
    collect(send(client, request).await?.into_body()).await
}

/// Opens a watch.
pub async fn open(client: &Client, mut request: Request<Vec<u8>>) -> Result<Lines, WatchError> {
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let body = send(client, request).await?.into_body();
    Ok(Lines { body, frame: Bytes::new(), begun: Vec::new() })
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Response<Body>, WatchError> {
    let response = client.send(request.map(Body::from)).await?;
    let code = response.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(response);
    }
    // The error to a watch has no deadline of its own.
    let body = tokio::time::timeout(ANSWER_TIMEOUT, collect(response.into_body())).await;
    let status = body.ok().and_then(Result::ok).and_then(|body| serde_json::from_slice::<Status>(&body).ok());
    let unknown = || Status::failure("the response says nothing more", "Unknown");
    let status = status.unwrap_or_else(unknown).with_code(code.as_u16());
    Err(kube::Error::Api(status.boxed()).into())
}

/// Reads a body. Each frame is freed before the next one, so that the connection uses its memory again.
async fn collect(body: Body) -> Result<Vec<u8>, WatchError> {
    let mut body = Limited::new(body, MAX_RESPONSE);
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Some(data) = frame.data_ref() {
                    text.extend_from_slice(data);
                }
            }
            Err(error) if error.is::<LengthLimitError>() => return Err(WatchError::TooLarge(MAX_RESPONSE)),
            Err(error) => return Err(WatchError::Request(kube::Error::Service(error))),
        }
    }
    Ok(text)
}

/// The lines of a watch, each an event. Between events it keeps no memory.
pub struct Lines {
    body: Body,
    /// What was received and not returned yet.
    frame: Bytes,
    /// The beginning of a line that is not complete yet.
    begun: Vec<u8>,
}

impl Lines {
    /// Waits for the next line. `None` means that the watch has ended.
    pub async fn next(&mut self) -> Result<Option<Bytes>, WatchError> {
        loop {
            if let Some(end) = self.frame.iter().position(|byte| *byte == b'\n') {
                let line = self.frame.split_to(end + 1);
                if self.begun.is_empty() {
                    return Ok(Some(line));
                }
                self.begun.extend_from_slice(&line);
                return Ok(Some(mem::take(&mut self.begun).into()));
            }
            self.begun.extend_from_slice(&mem::take(&mut self.frame));
            match self.body.frame().await {
                Some(frame) => self.frame = frame?.into_data().unwrap_or_default(),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_found_wherever_frames_begin_and_end() {
        let body = Body::from(b"\"first\"\n\"second\"\nunfinished".to_vec());
        let mut lines = Lines { body, frame: Bytes::new(), begun: b"be".to_vec() };
        let mut next =
            async || lines.next().await.unwrap().map(|line| String::from_utf8(line.to_vec()).unwrap());
        assert_eq!(next().await.as_deref(), Some("be\"first\"\n"));
        assert_eq!(next().await.as_deref(), Some("\"second\"\n"));
        assert_eq!(next().await, None, "a line that was cut off is no event");
    }
}
