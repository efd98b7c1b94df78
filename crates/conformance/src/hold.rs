//! Holds requests in the API server, so that an operation of any tool stops where a case needs it.

use std::sync::Arc;

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::ConfigMap,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    BoxError, CaseError,
    context::Context,
    objects::{PATIENCE, POLL},
};

/// Label of the objects whose requests are held.
pub const HELD_LABEL: &str = "conformance.chandler.dev/held";

/// The longest time that an API server waits for a webhook.
const WEBHOOK_TIMEOUT: i32 = 30;

/// Holds every request that creates, updates or deletes an object with the label [`HELD_LABEL`] in the case's namespace:
/// the API server asks a validating webhook that does not answer. When the hold is released or dropped, the API server
/// ignores the webhook and continues with the requests.
pub struct Hold {
    webhook: Webhook,
    /// Requests of the suite itself.
    own: usize,
    configuration: String,
    configurations: Api<ValidatingWebhookConfiguration>,
}

impl Hold {
    /// Returns when requests are held.
    pub async fn start(context: &Context) -> Result<Self, CaseError> {
        let webhook = Webhook::listen().await?;
        let configurations = Api::all(context.environment.client.clone());
        let configuration = webhook.configuration(&context.namespace);
        configurations.create(&PostParams::default(), &configuration).await?;
        let configuration = configuration.metadata.name.unwrap_or_default();
        let mut hold = Self { webhook, own: 0, configuration, configurations };
        let active = timeout(PATIENCE, hold.activate(context)).await;
        active.map_err(|_| CaseError::Host("the API server does not call the suite's webhook".into()))??;
        Ok(hold)
    }

    /// Sends requests that change nothing until one of them is held.
    async fn activate(&mut self, context: &Context) -> Result<(), CaseError> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("hold-probe".to_owned());
        object.metadata.labels = Some([(HELD_LABEL.to_owned(), "true".to_owned())].into());
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let (api, mut requests) = (context.api::<ConfigMap>(), self.webhook.requests.clone());
        loop {
            tokio::select! {
                result = api.create(&dry_run, &object) => drop(result?),
                _ = requests.changed() => break,
            }
            tokio::time::sleep(POLL).await;
        }
        self.own = *self.webhook.requests.borrow();
        Ok(())
    }

    /// Returns when this many requests of the tool have been held.
    pub async fn until_held(&self, count: usize) -> Result<(), CaseError> {
        let mut requests = self.webhook.requests.clone();
        let held = timeout(PATIENCE, requests.wait_for(|seen| *seen >= self.own + count)).await.is_ok();
        let seen = self.webhook.requests.borrow().saturating_sub(self.own);
        ensure!(held, "{seen} of {count} requests for labeled objects arrived within {PATIENCE:?}");
        Ok(())
    }

    /// Lets the held requests continue, and holds no further ones.
    pub async fn release(self) -> Result<(), CaseError> {
        let Self { webhook, configuration, configurations, .. } = self;
        drop(webhook);
        configurations.delete(&configuration, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// A server that takes TLS connections and never answers a request.
struct Webhook {
    task: JoinHandle<()>,
    url: String,
    certificate: String,
    /// How many requests it has received.
    requests: watch::Receiver<usize>,
}

impl Webhook {
    async fn listen() -> Result<Self, CaseError> {
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
            .map_err(|error| CaseError::Host(error.into()))?;
        let acceptor = acceptor(&identity).map_err(CaseError::Host)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let (count, requests) = watch::channel(0);
        Ok(Self {
            task: tokio::spawn(accept(listener, acceptor, count)),
            url,
            certificate: identity.cert.pem(),
            requests,
        })
    }

    fn configuration(&self, namespace: &str) -> ValidatingWebhookConfiguration {
        let any = || Some(vec!["*".to_owned()]);
        let labels = |key: &str, value: &str| LabelSelector {
            match_labels: Some([(key.to_owned(), value.to_owned())].into()),
            ..LabelSelector::default()
        };
        let mut configuration = ValidatingWebhookConfiguration::default();
        configuration.metadata.name = Some(format!("conformance-{namespace}"));
        configuration.webhooks = Some(vec![ValidatingWebhook {
            name: "held.conformance.chandler.dev".to_owned(),
            client_config: WebhookClientConfig {
                url: Some(self.url.clone()),
                ca_bundle: Some(ByteString(self.certificate.clone().into_bytes())),
                service: None,
            },
            rules: Some(vec![RuleWithOperations {
                api_groups: any(),
                api_versions: any(),
                resources: any(),
                operations: Some(["CREATE", "UPDATE", "DELETE"].map(str::to_owned).to_vec()),
                scope: None,
            }]),
            namespace_selector: Some(labels("kubernetes.io/metadata.name", namespace)),
            object_selector: Some(labels(HELD_LABEL, "true")),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            timeout_seconds: Some(WEBHOOK_TIMEOUT),
            failure_policy: Some("Ignore".to_owned()),
            ..ValidatingWebhook::default()
        }]);
        configuration
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(identity: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Result<TlsAcceptor, BoxError> {
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, count: watch::Sender<usize>) {
    // Ends with this task, which closes the connections.
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        connections.spawn(keep(connection, acceptor.clone(), count.clone()));
    }
}

/// Waits for a request and keeps its connection open. Without the TLS handshake the API server would give up early.
async fn keep(connection: TcpStream, acceptor: TlsAcceptor, count: watch::Sender<usize>) {
    let Ok(mut connection) = acceptor.accept(connection).await else { return };
    if connection.read_u8().await.is_ok() {
        count.send_modify(|requests| *requests += 1);
        std::future::pending::<()>().await;
    }
}
