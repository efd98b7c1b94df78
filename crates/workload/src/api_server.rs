//! A small API server: it answers what a test sets, and records the requests.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use chandler_core::{
    addresses::AddressPolicy,
    identity::ClusterKey,
    target::{Target, TargetTls},
};
use chandler_sandbox::certificates::Authority;
use chandler_telemetry::RequestCounter;
use futures::{StreamExt as _, channel::mpsc};
use http::{Request, Response, header::ACCEPT};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
};
use tokio_rustls::TlsAcceptor;

use crate::{WATCH_SILENCE, budget::ResponseBudgets, reach::ClientOptions, response::MAX_RESPONSE};

/// Longer than anything takes that succeeds.
pub const LONG: Duration = Duration::from_secs(20);

/// Returns options with which servers on this machine are allowed.
pub fn client_options(requests: &RequestCounter) -> ClientOptions {
    let allowed = vec!["127.0.0.1".parse().unwrap()];
    ClientOptions {
        requests: requests.clone(),
        watch_silence: WATCH_SILENCE,
        addresses: Arc::new(AddressPolicy { allowed, ..AddressPolicy::default() }),
        budgets: ResponseBudgets::default(),
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub query: String,
    pub accept: String,
}

impl Received {
    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// Returns the maximum number of objects that the client asks for.
    pub fn limit(&self) -> Option<u32> {
        self.query.split('&').find_map(|one| one.strip_prefix("limit="))?.parse().ok()
    }
}

#[derive(Default)]
struct State {
    connections: usize,
    received: Vec<Received>,
    answers: HashMap<String, Value>,
    /// Paths whose answers wait until the sender is dropped.
    delays: HashMap<String, watch::Receiver<()>>,
    /// Lists of a path with more objects than this are too large.
    largest_pages: HashMap<String, u32>,
    /// The status of the next watches of a path.
    refused_watches: HashMap<String, u16>,
    watches: HashMap<String, mpsc::UnboundedSender<Bytes>>,
}

/// The server. It listens as long as the test's runtime lives.
#[derive(Clone)]
pub struct ApiServer {
    pub url: String,
    pub ca: String,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl ApiServer {
    /// Starts a server that offers these protocols.
    pub async fn start(protocols: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path(), "test").unwrap();
        let acceptor = acceptor(&authority, protocols);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let ca = authority.certificate().to_owned();
        let server = Self { url, ca, state: Arc::default(), changed: Arc::default() };
        let started = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, server) = (acceptor.clone(), server.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    server.lock().connections += 1;
                    let respond = service_fn(move |request| {
                        let response = server.respond(&request);
                        let delay = server.lock().delays.get(request.uri().path()).cloned();
                        async move {
                            if let Some(mut delay) = delay {
                                while delay.changed().await.is_ok() {}
                            }
                            Ok::<_, Infallible>(response)
                        }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), respond).await;
                });
            }
        });
        started
    }

    /// Returns how to reach the server.
    pub fn target(&self) -> Target {
        Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: self.url.clone(),
            tls: TargetTls { ca_pem: Some(self.ca.as_bytes().to_vec()), ..TargetTls::default() },
            auth: None,
            proxy: None,
            request_timeout: Duration::from_secs(10),
            boundary: chandler_core::tenancy::Boundary::default(),
        }
    }

    /// Sets the answer to requests for a path that are no watches.
    pub fn answer(&self, path: &str, answer: Value) {
        self.lock().answers.insert(path.to_owned(), answer);
    }

    /// Sets the objects of a list.
    pub fn list(&self, path: &str, version: &str, objects: &[Value]) {
        self.answer(path, json!({"metadata": {"resourceVersion": version}, "items": objects}));
    }

    /// Delays the answers to requests for a path until what is returned is dropped.
    pub fn delay(&self, path: &str) -> watch::Sender<()> {
        let (sender, receiver) = watch::channel(());
        self.lock().delays.insert(path.to_owned(), receiver);
        sender
    }

    /// Makes pages of a path with more objects larger than a response may be.
    pub fn set_largest_page(&self, path: &str, objects: u32) {
        self.lock().largest_pages.insert(path.to_owned(), objects);
    }

    /// Refuses the next watch of a path.
    pub fn refuse_watch(&self, path: &str, code: u16) {
        self.lock().refused_watches.insert(path.to_owned(), code);
    }

    /// Sends an event to the last watch of a path, once it is open.
    pub async fn send(&self, path: &str, change: &str, object: &Value) {
        self.until(|state| state.watches.contains_key(path)).await;
        let line = format!("{}\n", json!({"type": change, "object": object}));
        // In two frames, as a connection may split it.
        let (head, tail) = line.split_at(line.len() / 2);
        for part in [head, tail] {
            let part = Bytes::from(part.to_owned());
            self.lock().watches[path].unbounded_send(part).unwrap();
        }
    }

    /// Ends the watch of a path, once it is open.
    pub async fn end_watch(&self, path: &str) {
        self.until(|state| state.watches.contains_key(path)).await;
        self.lock().watches.remove(path);
    }

    /// Waits until the watch of a path is open, or is not.
    pub async fn until_watched(&self, path: &str, open: bool) {
        self.until(|state| state.watches.get(path).is_some_and(|watch| !watch.is_closed()) == open).await;
    }

    /// Waits until so many requests for a path were received, and returns them.
    pub async fn requests(&self, path: &str, at_least: usize) -> Vec<Received> {
        let of_path = |state: &State| -> Vec<Received> {
            state.received.iter().filter(|one| one.path == path).cloned().collect()
        };
        self.until(|state| of_path(state).len() >= at_least).await;
        of_path(&self.lock())
    }

    pub fn connections(&self) -> usize {
        self.lock().connections
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        let wait = async {
            while !condition(&self.lock()) {
                // A client that closes a watch causes no notification here.
                let _ = tokio::time::timeout(Duration::from_millis(50), self.changed.notified()).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the expected requests");
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let accept = request.headers().get(ACCEPT).map(|value| value.to_str().unwrap()).unwrap_or_default();
        let received = Received {
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            accept: accept.to_owned(),
        };
        let mut state = self.lock();
        let response = state.respond(&received);
        state.received.push(received);
        self.changed.notify_waiters();
        response
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn respond(&mut self, received: &Received) -> Response<Body> {
        if !received.is_watch() {
            if received.limit() > self.largest_pages.get(&received.path).copied().or(received.limit()) {
                return response(200, &json!({"padding": "x".repeat(MAX_RESPONSE)}));
            }
            return match self.answers.get(&received.path) {
                Some(answer) => response(200, answer),
                None => failure(404, received.path.rsplit('/').next().unwrap_or_default()),
            };
        }
        if let Some(code) = self.refused_watches.remove(&received.path) {
            return failure(code, "");
        }
        let (sender, events) = mpsc::unbounded();
        self.watches.insert(received.path.clone(), sender);
        let frames = events.map(|bytes| Ok(Frame::data(bytes)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn failure(code: u16, name: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "details": {"name": name}});
    response(code, &status)
}

fn acceptor(authority: &Authority, protocols: &[&str]) -> TlsAcceptor {
    let pair = authority.server(&[]).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}
