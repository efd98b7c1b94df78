//! Runs the manager of Cluster API's core provider as a local process, and installs its CRDs and webhooks.

mod manifests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::manifests::WebhookServer;
use crate::apply::{self, apply};
use crate::assets::{Assets, Binary};
use crate::certificates::{self, Authority};
use crate::plane::{NoFreePort, Plane, free_port};
use crate::process::{self, Child, GRACE_PERIOD, Spec};
use crate::provider;

const NAMESPACE: &str = "capi-system";
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// An error while starting Cluster API's core provider.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the Cluster API manifest {}: {source}", path.display())]
    ReadManifest { path: PathBuf, source: std::io::Error },
    #[error("{} is not YAML: {source}", path.display())]
    ParseManifest { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error(transparent)]
    Apply(#[from] apply::Error),
    #[error("the CustomResourceDefinition {name} was not Established within {} s", READY_TIMEOUT.as_secs())]
    NotEstablished { name: String },
    #[error("cannot serialize a CustomResourceDefinition: {0}")]
    Serialize(#[from] serde_json::Error),
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error(transparent)]
    Port(#[from] NoFreePort),
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error("the Cluster API manager was not ready within {} s; its log is {}", READY_TIMEOUT.as_secs(), log.display())]
    NotReady { log: PathBuf },
}

impl Error {
    fn manifest(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::ReadManifest { path: path.clone(), source }
    }
}

/// Whether Cluster API calls runtime hooks, which is the case if its feature gate `RuntimeSDK` is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeSdk {
    Enabled,
    Disabled,
}

/// The running manager of the core provider.
#[derive(Debug)]
pub struct Core {
    child: Child,
}

impl Core {
    /// Installs the CRDs of the core provider and of the sandbox provider, and starts the manager.
    pub async fn start(
        assets: &Assets,
        plane: &Plane,
        client: &kube::Client,
        authority: &Authority,
        home: &Path,
        runtime_sdk: RuntimeSdk,
    ) -> Result<Self, Error> {
        let server = WebhookServer { port: free_port()?, authority: authority.certificate().to_owned() };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        apply(client, &namespace).await?;
        install_crds(assets, client, &server).await?;
        let webhooks = manifests::webhooks(assets.capi_config(), &server)?;
        try_join_all(webhooks.iter().map(|webhook| apply(client, webhook))).await?;

        process::terminate_orphans(home);
        let health = free_port()?;
        let certificates = home.join("webhook");
        authority.server(&[])?.write(&certificates, "tls")?;
        let spec = manager_spec(assets, plane, home, &certificates, [server.port, health], runtime_sdk);
        let child = Child::spawn(&spec)?;
        wait_ready(&child, health).await?;
        Ok(Self { child })
    }

    pub async fn stop(self) {
        self.child.stop(GRACE_PERIOD).await;
    }

    pub fn check(&self) -> Result<(), process::Error> {
        self.child.check()
    }
}

fn manager_spec(
    assets: &Assets,
    plane: &Plane,
    home: &Path,
    certificates: &Path,
    [webhook_port, health_port]: [u16; 2],
    runtime_sdk: RuntimeSdk,
) -> Spec {
    let calls_hooks = runtime_sdk == RuntimeSdk::Enabled;
    Spec {
        name: Binary::CapiManager.file_name().to_owned(),
        program: assets.path(Binary::CapiManager).to_owned(),
        args: vec![
            format!("--kubeconfig={}", plane.kubeconfig_path().display()),
            format!("--webhook-port={webhook_port}"),
            format!("--webhook-cert-dir={}", certificates.display()),
            "--webhook-cert-name=tls.pem".to_owned(),
            "--webhook-key-name=tls.key".to_owned(),
            format!("--health-addr=127.0.0.1:{health_port}"),
            "--diagnostics-address=0".to_owned(),
            "--leader-elect=false".to_owned(),
            format!("--feature-gates=ClusterTopology=true,RuntimeSDK={calls_hooks}"),
            // The API server is not shared, so the client does not have to be throttled.
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ],
        env: vec![
            ("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
            ("HOME".to_owned(), home.display().to_string()),
        ],
        home: home.to_owned(),
    }
}

async fn install_crds(assets: &Assets, client: &kube::Client, server: &WebhookServer) -> Result<(), Error> {
    let mut crds = manifests::crds(assets.capi_config(), server)?;
    for crd in provider::crds() {
        crds.push(serde_json::to_value(crd)?);
    }
    try_join_all(crds.iter().map(|crd| apply(client, crd))).await?;
    let names = crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str());
    try_join_all(names.map(|name| wait_established(client, name))).await?;
    Ok(())
}

async fn wait_established(client: &kube::Client, name: &str) -> Result<(), Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established =
        kube::runtime::wait::await_condition(crds, name, kube::runtime::conditions::is_crd_established());
    match tokio::time::timeout(READY_TIMEOUT, established).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Error::NotEstablished { name: name.to_owned() }),
    }
}

async fn wait_ready(child: &Child, port: u16) -> Result<(), Error> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !is_ready(port).await {
        child.check()?;
        if Instant::now() > deadline {
            return Err(Error::NotReady { log: child.log().to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Calls the readiness probe, with a hand-written request instead of an HTTP client.
async fn is_ready(port: u16) -> bool {
    let request = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    request.await.is_ok_and(|response| response.lines().next().is_some_and(|line| line.contains(" 200 ")))
}
