//! Receives webhooks of Git hosts and registries. A webhook only requests a poll: nothing in it is used but the proof that its
//! sender knows the secret of the Source.
//!
//! Only the leader listens. It writes the address of its Pod to the EndpointSlice of the Service, so that the Service reaches
//! no other Pod.

mod endpoint;
mod server;
mod signature;

use std::{net::SocketAddr, sync::Arc};

use chandler_api::extensions::{KeyReference, Source};
use chandler_core::source::Origin;
use http::HeaderMap;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use tokio::net::TcpListener;

pub use self::endpoint::ReceiverService;
use self::signature::{has_signature, is_signed};
use super::{Sources, requests::PollRequests};
use crate::{
    StartupError,
    routing::Router,
    single_flight::{MOMENT, SingleFlight},
    tasks::Tasks,
};

/// How webhooks are received.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The Service that routes to the leader. `None` means that its endpoints are not managed.
    pub service: Option<ReceiverService>,
}

/// The answer to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// The Source does not exist, has no receiver, or the request is not signed with its secret. Senders cannot tell which.
    Refused,
    /// The Secret cannot be read now.
    Unavailable,
}

/// Namespace, name and key of a Secret.
type SecretKey = (String, String, String);

struct Receiver {
    client: Client,
    sources: Sources,
    requests: Arc<PollRequests>,
    /// Reconciles a Source.
    enqueue: Box<dyn Fn(&Source) + Send + Sync>,
    /// `None` for a Secret or key that does not exist.
    secrets: SingleFlight<SecretKey, Option<Arc<[u8]>>>,
}

/// Starts to receive webhooks.
pub async fn start(
    tasks: &mut Tasks,
    options: ReceiverOptions,
    client: Client,
    sources: Sources,
    router: Router,
) -> Result<(), StartupError> {
    let ReceiverOptions { address, service } = options;
    let listener =
        TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })?;
    let bound = listener.local_addr().unwrap_or(address);
    tracing::info!(address = %bound, "receiving webhooks for Sources");
    if let Some(service) = service {
        tasks.spawn(endpoint::publish(client.clone(), service, bound.port()));
    }
    let receiver = Receiver::new(client, sources, move |source: &Source| router.enqueue_source(source));
    tasks.spawn(server::run(listener, Arc::new(receiver), server::CONNECTION_TIMEOUT));
    Ok(())
}

impl Receiver {
    fn new(client: Client, sources: Sources, enqueue: impl Fn(&Source) + Send + Sync + 'static) -> Self {
        let requests = sources.requests.clone();
        Self { client, sources, requests, enqueue: Box::new(enqueue), secrets: SingleFlight::new(MOMENT) }
    }

    /// Returns the secret of a Source, if a request can be signed with it.
    async fn secret(&self, namespace: &str, name: &str, headers: &HeaderMap) -> Result<Arc<[u8]>, Answer> {
        if !has_signature(headers) {
            return Err(Answer::Refused);
        }
        let source = self.sources.find(namespace, name).ok_or(Answer::Refused)?;
        let receiver = source.spec.receiver.as_ref().ok_or(Answer::Refused)?;
        let KeyReference { name, key, .. } = &receiver.secret;
        let read = self.read(namespace, name, key);
        let secret_key = (namespace.to_owned(), name.clone(), key.clone());
        self.secrets.get(&secret_key, read).await?.ok_or(Answer::Refused)
    }

    async fn read(&self, namespace: &str, name: &str, key: &str) -> Result<Option<Arc<[u8]>>, Answer> {
        let found = Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await;
        let found = found.map_err(|error| {
            tracing::warn!(namespace, name, %error, "cannot read the Secret of a receiver");
            Answer::Unavailable
        })?;
        let value = found.and_then(|secret| secret.data?.remove(key)).map(|value| value.0);
        Ok(value.map(|value| without_newline(&value).into()).filter(|value: &Arc<[u8]>| !value.is_empty()))
    }

    /// Requests a poll of the Source if the request is signed.
    fn accept(&self, namespace: &str, name: &str, secret: &[u8], headers: &HeaderMap, body: &[u8]) -> Answer {
        if !is_signed(headers, body, secret) {
            tracing::debug!(
                namespace,
                name,
                "refused a webhook that is not signed with the secret of the Source"
            );
            return Answer::Refused;
        }
        let Some(source) = self.sources.find(namespace, name) else { return Answer::Refused };
        tracing::info!(namespace, name, "a webhook requests a poll");
        for same in self.same_repository(&source) {
            self.requests.add(&same.uid().unwrap_or_default(), Timestamp::now());
            (self.enqueue)(&same);
        }
        Answer::Accepted
    }

    /// Returns the Sources of the same namespace with the same URL, which one webhook serves.
    fn same_repository(&self, source: &Source) -> Vec<Arc<Source>> {
        let url = |source: &Source| Origin::of(&source.spec).ok().map(Origin::url);
        let wanted = url(source);
        let all = self.sources.all(&source.namespace().unwrap_or_default());
        all.into_iter().filter(|other| url(other) == wanted).collect()
    }
}

/// Returns the value without newlines at its end, with which Secrets that are created from files often end.
fn without_newline(value: &[u8]) -> &[u8] {
    let last = value.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    &value[..last.map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, path::Path, time::Duration};

    use kube::{
        client::Body,
        runtime::{reflector::store::Writer, watcher::Event},
    };
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        sync::watch,
        time::{sleep, timeout},
    };

    use super::{
        server::{CONNECTION_TIMEOUT, MAX_BODY_BYTES, MAX_CONNECTIONS},
        *,
    };
    use crate::{locks::Mutex, sources::testing::packages};

    /// An API server with one Secret, whose value is `canary`.
    fn api_server() -> Client {
        let answer = |request: http::Request<Body>| async move {
            let (status, body) = if request.uri().path().ends_with("/namespaces/team/secrets/hook") {
                (200, json!({"apiVersion": "v1", "kind": "Secret", "data": {"token": "Y2FuYXJ5Cg=="}}))
            } else {
                (404, json!({"status": "Failure", "reason": "NotFound", "message": "absent", "code": 404}))
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn source(name: &str, url: &str, receiver: &Value) -> Source {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": name, "namespace": "team", "uid": name},
            "spec": {"git": {"url": url}, "receiver": receiver},
        }))
        .unwrap()
    }

    async fn post(receiver: &Receiver, name: &str, header: &'static str, value: &str) -> Answer {
        let value = value.parse::<http::HeaderValue>().unwrap();
        let headers: HeaderMap = [(http::HeaderName::from_static(header), value)].into_iter().collect();
        match receiver.secret("team", name, &headers).await {
            Ok(secret) => receiver.accept("team", name, &secret, &headers, b"{}"),
            Err(answer) => answer,
        }
    }

    /// Returns a receiver for three Sources, and the names of those that it enqueues.
    fn receiver(folder: &Path) -> (Receiver, Arc<Mutex<Vec<String>>>) {
        let mut objects = Writer::new(());
        let (hook, other) = ("https://git.example/a", "https://git.example/b");
        let secret = |name: &str| json!({"secret": {"name": name, "key": "token"}});
        for source in [
            source("fleet", hook, &secret("hook")),
            source("apps", hook, &json!(null)),
            source("other", other, &secret("missing")),
        ] {
            objects.apply_watcher_event(&Event::Apply(source));
        }
        let (stores, changes) = (vec![objects.as_reader()], watch::Sender::default());
        let sources = Sources::new(api_server(), stores, packages(folder), "platform", changes);
        let enqueued = Arc::<Mutex<Vec<String>>>::default();
        let log = enqueued.clone();
        let enqueue = move |source: &Source| log.lock().push(source.name_any());
        (Receiver::new(api_server(), sources, enqueue), enqueued)
    }

    #[tokio::test]
    async fn a_signed_webhook_requests_polls_of_the_same_repository() {
        let folder = tempfile::tempdir().unwrap();
        let (receiver, enqueued) = receiver(folder.path());
        let refused = [
            ("fleet", "x-gitlab-token", "wrong"),
            ("fleet", "x-other", "canary"),
            ("apps", "x-gitlab-token", "canary"),
            ("other", "x-gitlab-token", "canary"),
            ("missing", "x-gitlab-token", "canary"),
        ];
        for (name, header, value) in refused {
            assert_eq!(
                post(&receiver, name, header, value).await,
                Answer::Refused,
                "{name} {header} {value}"
            );
        }
        assert!(enqueued.lock().is_empty());
        assert_eq!(post(&receiver, "fleet", "x-gitlab-token", "canary").await, Answer::Accepted);
        let mut names = enqueued.lock().clone();
        names.sort_unstable();
        assert_eq!(names, ["apps", "fleet"], "one webhook serves all Sources of the repository");
        assert!(receiver.requests.get("fleet").is_some() && receiver.requests.get("other").is_none());
    }

    /// Serves the receiver. Returns its address.
    async fn serve(folder: &Path, timeout: Duration) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server::run(listener, Arc::new(receiver(folder).0), timeout));
        address
    }

    /// Sends the head of a webhook with a body of this length, and the body if there is one. Returns the status line.
    async fn request(address: SocketAddr, header: &str, length: usize, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /hooks/team/fleet HTTP/1.1\r\nhost: chandler\r\n{header}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).await.unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn bodies_are_limited_and_those_of_strangers_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let address = serve(folder.path(), CONNECTION_TIMEOUT).await;
        let (token, length) = ("x-gitlab-token: canary", MAX_BODY_BYTES + 1);
        // The body is not sent.
        let stranger = request(address, "x-other: canary", length, b"");
        let stranger = timeout(CONNECTION_TIMEOUT / 2, stranger).await.expect("its body is waited for");
        assert_eq!(stranger, "HTTP/1.1 401");
        assert_eq!(request(address, token, 2, b"{}").await, "HTTP/1.1 202");
        assert_eq!(request(address, token, length, &vec![b'x'; length]).await, "HTTP/1.1 413");
    }

    #[tokio::test]
    async fn connections_are_limited_in_number_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(2);
        let address = serve(folder.path(), limit).await;
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let waiting = tokio::spawn(request(address, "x-gitlab-token: canary", 2, b"{}"));
        sleep(limit / 4).await;
        assert!(!waiting.is_finished(), "one connection too many is served");
        for mut stream in silent {
            let closed = timeout(limit * 3, stream.read(&mut [0; 1])).await.expect("it stays open");
            assert_eq!(closed.unwrap_or_default(), 0);
        }
        assert_eq!(waiting.await.unwrap(), "HTTP/1.1 202");
    }
}
