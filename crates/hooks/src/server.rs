//! Serves the hooks over TLS.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Caller, Error, FailurePolicy, Hook, HookHandler, HookResponse, admission::Progress,
    certificates::CertificateResolver, connections::Connections, request::HookRequest, wire,
};

/// Limit of a whole connection, longer than the limits below together, so that it cuts no call that is handled. Cluster API times
/// out earlier.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Limits of the TLS handshake, of the head of a request, and of its body.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of the handler, well below the timeout of Cluster API.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(2);
/// Calls that are handled at the same time. A call whose caller has given up counts until its handler
/// has stopped.
const MAX_HANDLED: usize = 4;
/// When Cluster API calls again after the handler timed out or panicked.
const RETRY_SECONDS: u32 = 5;
/// A request contains one Cluster, and etcd limits objects to 1.5 MB.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The state that all hooks share.
#[derive(Clone)]
pub struct ServerState {
    pub handler: Handling,
    /// Whether Cluster API supports the hook `BeforeControlPlaneUpgrade`.
    pub control_plane_steps: Arc<AtomicBool>,
    pub failure_policy: FailurePolicy,
}

/// Runs the handler, for a limited number of calls at the same time.
#[derive(Clone)]
pub struct Handling {
    handler: Arc<dyn HookHandler>,
    slots: Arc<Semaphore>,
}

impl Handling {
    pub fn new(handler: Arc<dyn HookHandler>) -> Self {
        Self { handler, slots: Arc::new(Semaphore::new(MAX_HANDLED)) }
    }

    /// Calls the handler on a thread for blocking work. If this is dropped, the caller has given up.
    async fn call(
        &self,
        request: HookRequest,
    ) -> Result<HookResponse, Box<dyn std::error::Error + Send + Sync>> {
        let slot = self.slots.clone().acquire_owned().await?;
        let (handler, caller) = (self.handler.clone(), Caller::default());
        let _waiting = caller.waiting();
        let handle = move || {
            // The thread holds the slot, because the caller may go away.
            let _slot = slot;
            handler.respond(&request.cluster, request.call(), &caller)
        };
        Ok(tokio::task::spawn_blocking(handle).await?)
    }
}

pub fn tls(resolver: CertificateResolver) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until the future is dropped.
pub async fn run(listener: TcpListener, tls: TlsAcceptor, state: ServerState) {
    let router = router(&state);
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let (tls, router) = (tls.clone(), router.clone());
                let serve = |progress| async move {
                    let serve = connection(stream, tls, router, progress);
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serve).await;
                };
                connections.serve(client.ip(), serve).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the hooks");
                // Most likely the process is out of file descriptors. Wait until some are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, router: Router, progress: Progress) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake with a client of the hooks failed"),
        Err(_) => return tracing::debug!("a client of the hooks does not complete its TLS handshake"),
    };
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(progress.clone());
        router.call(request)
    });
    // One request per connection: if the server closes an idle connection while Cluster API sends the next request, Cluster
    // API treats that as a failed call and, with `failurePolicy: Ignore`, proceeds.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the hooks failed");
    }
}

fn router(state: &ServerState) -> Router {
    let discovery_state = state.clone();
    let discovery = move |Extension(progress): Extension<Progress>| {
        progress.begin_handling();
        let steps = discovery_state.control_plane_steps.load(Ordering::Acquire);
        let response = wire::discovery(steps, discovery_state.failure_policy);
        async move { json(&response) }
    };
    Hook::ALL.into_iter().fold(Router::new().route(wire::DISCOVERY, post(discovery)), |router, hook| {
        let handler = state.handler.clone();
        let handle =
            move |Extension(progress): Extension<Progress>, body: Body| handle(hook, body, handler, progress);
        router.route(&hook.path(), post(handle))
    })
}

async fn handle(hook: Hook, body: Body, handler: Handling, progress: Progress) -> Response {
    let parsed = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_REQUEST_BYTES)).await {
        Ok(Ok(body)) => {
            progress.begin_handling();
            // The error may contain a part of the request.
            HookRequest::parse(hook, &body).map_err(|error| wire::truncated(&error.to_string()))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the body of the request is not complete".to_owned()),
    };
    match parsed {
        Ok(request) => {
            let response = call_handler(request.clone(), &handler).await;
            log_response(hook, &request, &response);
            json(&wire::response(hook, &response, request.overridden))
        }
        Err(error) => {
            tracing::warn!(hook = hook.name(), error, "invalid hook request");
            (StatusCode::BAD_REQUEST, error).into_response()
        }
    }
}

/// Calls the handler. If it times out or panics, responds with `RetryAfter`: if Cluster API ran into its own timeout, it would
/// proceed or back off, depending on the failure policy.
async fn call_handler(request: HookRequest, handler: &Handling) -> HookResponse {
    let retry =
        |message: &str| HookResponse::RetryAfter { seconds: RETRY_SECONDS, message: message.to_owned() };
    match tokio::time::timeout(HANDLER_TIMEOUT, handler.call(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            tracing::error!(%error, "the handler of a hook failed");
            retry("Chandler failed to handle the hook; see its log")
        }
        Err(_) => retry("Chandler did not respond in time"),
    }
}

fn log_response(hook: Hook, request: &HookRequest, response: &HookResponse) {
    let (hook, cluster) = (hook.name(), request.cluster.to_string());
    match response {
        HookResponse::Proceed => tracing::info!(hook, cluster, "hook response: proceed"),
        HookResponse::RetryAfter { message, .. } | HookResponse::Block { message } if request.overridden => {
            tracing::warn!(
                hook,
                cluster,
                message,
                "hook response: proceed, because the proceed annotation of the Cluster overrides the blocking response"
            );
        }
        HookResponse::RetryAfter { seconds, message } => {
            tracing::info!(hook, cluster, seconds, message, "hook response: retry");
        }
        HookResponse::Block { message } => tracing::info!(hook, cluster, message, "hook response: block"),
    }
}

fn json(response: &impl Serialize) -> Response {
    match serde_json::to_vec(response) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests;
