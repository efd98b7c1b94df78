//! Asks an API server whether it still answers.
//!
//! Every cluster that sends nothing is asked every few seconds, so a probe costs as little as possible: its request is
//! prepared once and goes straight to the HTTP client, with the connections of all other requests, but without their queue,
//! retries and timers. The response is read, but not kept.

use std::{fmt, sync::Arc};

use chandler_core::failure::Failure;
use chandler_telemetry::RequestCounter;
use futures::{FutureExt as _, future::BoxFuture};
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client as HttpClient, connect::Connect};
use kube::client::Body;

use crate::reach::unreachable;

/// What a probe reads: every authenticated user may.
pub const PATH: &str = "/version";

/// Asks one API server. Clones share its connections.
#[derive(Clone)]
pub struct Probe(Arc<dyn Fn() -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>);

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

impl Probe {
    /// A probe that sends `request`, which contains the complete URI and the credentials.
    pub fn new<C>(http: HttpClient<C, Body>, request: Request<()>, requests: RequestCounter) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move || {
            let response = http.request(request.clone().map(|()| Body::empty()));
            let requests = requests.clone();
            async move {
                let response = response.await;
                requests.count_get(response.as_ref().ok().map(|response| response.status().as_u16()));
                let body = response.map_err(|error| unreachable(&error))?.into_body();
                drain(body).await.map_err(|error| unreachable(&error))
            }
            .boxed()
        }))
    }

    /// Waits for an answer. Any answer counts, even a refusal. The caller limits how long it may take.
    pub async fn answer(&self) -> Result<(), Failure> {
        (self.0)().await
    }
}

/// Reads a body to its end, so that its connection can be used again.
async fn drain(mut body: Incoming) -> hyper::Result<()> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
