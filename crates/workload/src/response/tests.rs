use std::convert::Infallible;

use futures::stream;
use http_body_util::StreamBody;
use serde_json::json;
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::status::MAX_MESSAGE;

const LIST: &str = "/api/v1/secrets";
const WATCH: &str = "/api/v1/secrets?watch=true";

/// Sends a request to a server that answers with these chunks. Returns the status, and the body or why it is not used.
async fn answer(uri: &str, status: u16, chunks: Vec<Bytes>) -> Result<(u16, Bytes), BoxError> {
    let server = service_fn(move |_: Request<()>| {
        let frames = chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        let body = StreamBody::new(stream::iter(frames));
        async move { Ok::<_, BoxError>(Response::builder().status(status).body(body).unwrap()) }
    });
    let request = Request::builder().uri(uri).body(()).unwrap();
    let response = ResponseLimits.layer(server).oneshot(request).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn unusable(error: &BoxError) -> UnusableResponse {
    error.downcast_ref::<UnusableResponse>().unwrap().clone()
}

/// Returns `count` chunks of a MiB, with this text at the end of each.
fn mebibytes(count: usize, end: &str) -> Vec<Bytes> {
    let chunk = Bytes::from([vec![b'x'; (1 << 20) - end.len()], end.as_bytes().to_vec()].concat());
    vec![chunk; count]
}

#[tokio::test]
async fn responses_and_events_are_limited() {
    let (status, body) = answer(LIST, 200, mebibytes(16, "\n")).await.unwrap();
    assert_eq!((status, body.len()), (200, 16 << 20));
    let error = answer(LIST, 200, mebibytes(17, "\n")).await.unwrap_err();
    assert_eq!(unusable(&error), UnusableResponse::TooLarge(MAX_RESPONSE));

    answer(WATCH, 200, mebibytes(20, "\n")).await.unwrap();
    let error = answer(WATCH, 200, mebibytes(5, "")).await.unwrap_err();
    assert_eq!(unusable(&error), UnusableResponse::EventTooLarge(MAX_EVENT));
}

#[tokio::test]
async fn redirects_are_refused() {
    for status in [301, 302, 303, 307, 308] {
        let error = answer(LIST, status, Vec::new()).await.unwrap_err();
        assert_eq!(unusable(&error), UnusableResponse::Redirect(status));
    }
}

#[tokio::test]
async fn only_the_message_of_a_status_is_passed_on() {
    let text = |value: &serde_json::Value| vec![Bytes::from(value.to_string())];
    let kept = json!({"kind": "Status", "status": "Failure", "message": "no such pod", "reason": "NotFound"});
    let long = json!({"status": "Failure", "message": "ä".repeat(5000), "code": 200});
    let not_a_status = "the response is not a status of Kubernetes";
    let rows = [
        (404, text(&kept), "no such pod".to_owned()),
        (403, text(&long), format!("{}…", "ä".repeat(MAX_MESSAGE))),
        (500, vec![Bytes::from_static(b"secret of an internal server")], not_a_status.to_owned()),
        (500, text(&json!({"secret": "of an internal server"})), not_a_status.to_owned()),
        (500, mebibytes(2, ""), not_a_status.to_owned()),
    ];
    for (code, body, message) in rows {
        let (status, body) = answer(LIST, code, body).await.unwrap();
        let reported: Status = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, reported.code, reported.message), (code, code, message));
    }
}
