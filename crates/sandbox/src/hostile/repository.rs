//! A repository whose responses are hostile.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use futures::stream;

/// Returns a router for an https server. `respond` returns the response to a request of a path.
pub fn router(respond: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Router {
    Router::new().fallback(move |uri: Uri| {
        let response = respond(uri.path());
        async move { response }
    })
}

/// Returns an index with version 1.0.0 of the chart `web` at a URL.
pub fn index(url: &str, digest: &str) -> Response {
    format!("entries:\n  web:\n  - {{version: 1.0.0, urls: ['{url}'], digest: '{digest}'}}\n").into_response()
}

pub fn redirect(target: &str) -> Response {
    (StatusCode::FOUND, [("location", target)]).into_response()
}

/// Returns a response whose body never ends.
pub fn endless(chunk: &'static [u8], pause: Duration) -> Response {
    let chunks = stream::unfold((), move |()| async move {
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(chunk), ()))
    });
    Body::from_stream(chunks).into_response()
}
