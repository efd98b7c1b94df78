//! Serving over TLS.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rustls::ServerConfig;
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{Answer, Answers, Error, FailurePolicy, Hook, certificates::Served, request::HookRequest, wire};

/// From the first byte to the last. Cluster API has given up by then.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// When an answer is overdue; well before Cluster API gives up.
const DEADLINE: Duration = Duration::from_secs(2);
/// When it asks again for one that was.
const PATIENCE_SECONDS: u32 = 5;
/// So many at a time; the next one waits for its turn.
const CONNECTIONS: usize = 64;
/// A request carries one Cluster; etcd takes no object over 1.5 MB.
const LARGEST_REQUEST: usize = 4 << 20;

/// What is behind the hooks.
#[derive(Clone)]
pub struct Site {
    pub answers: Arc<dyn Answers>,
    /// Whether Cluster API knows the hook for each step of a control plane.
    pub control_plane_steps: Arc<AtomicBool>,
    pub before_upgrade: FailurePolicy,
}

pub fn tls(served: Served) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(served));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until it is dropped.
pub async fn run(listener: TcpListener, tls: TlsAcceptor, site: Site) {
    let router = router(&site);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = slots.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let (tls, router) = (tls.clone(), router.clone());
                connections.spawn(async move {
                    let _slot = slot;
                    let _ = tokio::time::timeout(CONNECTION_LIMIT, connection(stream, tls, router)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the hooks was not accepted");
                // Out of file descriptors, most likely: that takes a moment to pass.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, router: Router) {
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "a connection to the hooks was not made"),
    };
    // One request each: a kept connection that ends as the next request is sent looks to Cluster API like a hook that
    // cannot be reached, and it may go on without our answer.
    let served = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the hooks broke");
    }
}

fn router(site: &Site) -> Router {
    let discovering = site.clone();
    let discovery = move || {
        let steps = discovering.control_plane_steps.load(Ordering::Acquire);
        let response = wire::discovery(steps, discovering.before_upgrade);
        async move { json(&response) }
    };
    Hook::ALL.into_iter().fold(Router::new().route(wire::DISCOVERY, post(discovery)), |router, hook| {
        let answers = site.answers.clone();
        router.route(&hook.path(), post(move |body: Body| answer(hook, body, answers)))
    })
}

async fn answer(hook: Hook, body: Body, answers: Arc<dyn Answers>) -> Response {
    let read = match to_bytes(body, LARGEST_REQUEST).await {
        Ok(request) => HookRequest::read(hook, &request).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match read {
        Ok(request) => {
            let answer = in_time(request.clone(), answers).await;
            tell(hook, &request, &answer);
            json(&wire::response(hook, &answer, request.overruled))
        }
        Err(error) => {
            tracing::warn!(hook = hook.name(), error, "a hook was called with what is no request");
            (StatusCode::BAD_REQUEST, error).into_response()
        }
    }
}

/// Cluster API goes on, or backs off, when it has to wait: so whoever has no answer yet asks for patience.
async fn in_time(request: HookRequest, answers: Arc<dyn Answers>) -> Answer {
    let patience = |why: &str| Answer::Wait { seconds: PATIENCE_SECONDS, message: why.to_owned() };
    let asked = tokio::task::spawn_blocking(move || request.put(answers.as_ref()));
    match tokio::time::timeout(DEADLINE, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::error!(%error, "a hook has no answer");
            patience("Chandler could not answer; its log says why")
        }
        Err(_) => patience("Chandler has not answered in time"),
    }
}

fn tell(hook: Hook, request: &HookRequest, answer: &Answer) {
    let (hook, cluster) = (hook.name(), request.cluster.to_string());
    match answer {
        Answer::Go => tracing::info!(hook, cluster, "go"),
        Answer::Wait { message, .. } | Answer::Refuse { message } if request.overruled => {
            tracing::warn!(
                hook,
                cluster,
                message,
                "go, because the Cluster's annotation overrules what holds it"
            );
        }
        Answer::Wait { seconds, message } => tracing::info!(hook, cluster, seconds, message, "wait"),
        Answer::Refuse { message } => tracing::info!(hook, cluster, message, "refused"),
    }
}

fn json(response: &impl Serialize) -> Response {
    match serde_json::to_vec(response) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use chandler_core::identity::ClusterKey;

    use super::*;

    /// Says what it is about to do.
    enum Clumsy {
        /// Until nobody sends any more.
        Slow(Mutex<mpsc::Receiver<()>>),
        Broken,
    }

    impl Clumsy {
        fn answer(&self) -> Answer {
            match self {
                Self::Slow(end) => end.lock().unwrap().recv().unwrap_err(),
                Self::Broken => panic!("no answer"),
            };
            Answer::Go
        }
    }

    impl Answers for Clumsy {
        fn before_cluster_upgrade(&self, _: &ClusterKey, _: &str, _: &str) -> Answer {
            self.answer()
        }

        fn before_control_plane_upgrade(&self, _: &ClusterKey, _: &str, _: &str) -> Answer {
            self.answer()
        }

        fn after_control_plane_upgrade(&self, _: &ClusterKey, _: &str) -> Answer {
            self.answer()
        }

        fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> Answer {
            self.answer()
        }

        fn before_cluster_delete(&self, _: &ClusterKey) -> Answer {
            self.answer()
        }
    }

    #[tokio::test]
    async fn cluster_api_is_asked_for_patience_by_whoever_has_no_answer() {
        let request = br#"{"cluster": {"metadata": {"namespace": "fleet", "name": "blue"}}}"#;
        let request = HookRequest::read(Hook::BeforeClusterDelete, request).unwrap();
        let (end, ended) = mpsc::channel();
        let rows = [
            (Clumsy::Slow(Mutex::new(ended)), "Chandler has not answered in time"),
            (Clumsy::Broken, "Chandler could not answer; its log says why"),
        ];
        for (clumsy, message) in rows {
            let answer = in_time(request.clone(), Arc::new(clumsy)).await;
            assert_eq!(answer, Answer::Wait { seconds: PATIENCE_SECONDS, message: message.to_owned() });
        }
        drop(end);
    }
}
