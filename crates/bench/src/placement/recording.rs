//! The answers of a real API server, each recorded when it is needed for the first time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    body::{Body, Bytes},
    http::{
        HeaderValue, Method, Request, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use kube::{Client, client::Body as ClientBody};
use tokio::sync::OnceCell;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A recorded answer.
#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

/// A request that changes nothing: its method, its path with the query, the format that the client accepts, and its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordedRequest {
    pub method: Method,
    pub path: String,
    pub accept: Option<HeaderValue>,
    pub content_type: Option<HeaderValue>,
    pub body: Bytes,
}

/// All recorded answers. The same request is sent to the real API server once, however many clusters replay its answer.
pub struct Recording {
    client: Client,
    answers: Mutex<HashMap<RecordedRequest, Arc<OnceCell<Answer>>>>,
}

impl Recording {
    /// Records answers with the client of a real API server.
    pub fn of(client: Client) -> Self {
        Self { client, answers: Mutex::default() }
    }

    /// Returns the answer to a request. It is 503 if the real API server did not answer; that is not recorded.
    pub async fn answer(&self, request: RecordedRequest) -> Response {
        let cell = self.cell(&request);
        match cell.get_or_try_init(|| self.record(&request)).await {
            Ok(answer) => answer.to_response(),
            Err(error) => {
                tracing::warn!("cannot record {}: {error:#}", request.path);
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        }
    }

    fn cell(&self, request: &RecordedRequest) -> Arc<OnceCell<Answer>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry(request.clone()).or_default().clone()
    }

    async fn record(&self, request: &RecordedRequest) -> Result<Answer> {
        let accept = request.accept.clone().unwrap_or_else(|| HeaderValue::from_static("application/json"));
        let forwarded = Request::builder().method(&request.method).uri(&request.path).header(ACCEPT, accept);
        let forwarded = match &request.content_type {
            Some(content_type) => forwarded.header(CONTENT_TYPE, content_type),
            None => forwarded,
        };
        let forwarded = forwarded.body(ClientBody::from(request.body.to_vec()))?;
        let read = async {
            let (head, body) = self.client.send(forwarded).await?.into_parts();
            let content_type = head.headers.get(CONTENT_TYPE).cloned();
            anyhow::Ok(Answer { status: head.status, content_type, body: body.collect_bytes().await? })
        };
        tokio::time::timeout(TIMEOUT, read).await.context("the API server did not answer in time")?
    }
}

impl Answer {
    fn to_response(&self) -> Response {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        if let Some(content_type) = &self.content_type {
            response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
        }
        response
    }
}
