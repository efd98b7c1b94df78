//! Short messages on streams, with bounded sizes.

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, server::SendResponse};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use serde::Serialize;

use crate::budget::CountedBytes;

/// The longest text that explains a status, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 1024;

/// A body that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the message has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error(transparent)]
    Stream(#[from] h2::Error),
}

/// Reads a whole body.
pub(super) async fn read_body(mut body: RecvStream, limit: usize) -> Result<Bytes, BodyError> {
    let mut content = BytesMut::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        if content.len() + bytes.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        content.extend_from_slice(&bytes);
        body.flow_control().release_capacity(bytes.len())?;
    }
    Ok(content.freeze())
}

/// Reads the text that explains a status, as far as it is readable.
pub(super) async fn read_text(body: RecvStream) -> String {
    match read_body(body, MAX_TEXT_BYTES).await {
        Ok(bytes) => printable(&String::from_utf8_lossy(&bytes), MAX_TEXT_BYTES),
        Err(error) => error.to_string(),
    }
}

/// Returns a text of the other side for display: on one line and not too long.
pub(super) fn printable(text: &str, max_chars: usize) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(max_chars).collect()
}

/// Answers with a status and a text.
pub(super) fn respond(mut responder: SendResponse<CountedBytes>, status: StatusCode, text: &str) {
    let text = text.chars().scan(0, |length, char| {
        *length += char.len_utf8();
        (*length <= MAX_TEXT_BYTES).then_some(char)
    });
    send(&mut responder, status, Bytes::from(text.collect::<String>()));
}

/// Answers 200 with a document in JSON.
pub(super) fn respond_json(mut responder: SendResponse<CountedBytes>, document: &impl Serialize) {
    match serde_json::to_vec(document) {
        Ok(json) => send(&mut responder, StatusCode::OK, json.into()),
        Err(error) => send(&mut responder, StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
    }
}

fn send(responder: &mut SendResponse<CountedBytes>, status: StatusCode, body: Bytes) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    // An error means that the stream is closed: the other side does not wait for an answer.
    if let Ok(mut stream) = responder.send_response(response, body.is_empty())
        && !body.is_empty()
    {
        let _ = stream.send_data(CountedBytes::uncounted(body), true);
    }
}

/// Builds a `CONNECT` request.
pub(super) fn connect(authority: &str) -> Result<Request<()>, http::Error> {
    let uri = Uri::builder().authority(authority).build()?;
    Request::builder().method(Method::CONNECT).version(Version::HTTP_2).uri(uri).body(())
}

/// Builds a request for a path.
pub(super) fn request(method: Method, path: &str) -> Result<Request<()>, http::Error> {
    let uri = Uri::builder().scheme("https").authority("tunnel").path_and_query(path).build()?;
    Request::builder().method(method).version(Version::HTTP_2).uri(uri).body(())
}
