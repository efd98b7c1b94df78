//! Connects commands to the management cluster.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use chandler_controller::{Connect, FairWrites};
use chandler_source::ProxyMatcher;
use chandler_telemetry::RequestCounter;
use chandler_workload::{ResponseDeadlines, WATCH_SILENCE};
use clap::Args;
use http::{HeaderValue, Uri, header::USER_AGENT};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A management cluster that does not answer within this time is unavailable.
const DEADLINES: ResponseDeadlines =
    ResponseDeadlines { response: Duration::from_secs(30), watch_silence: WATCH_SILENCE };

/// Selects the management cluster.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Kubeconfig of the management cluster [default: $KUBECONFIG, ~/.kube/config or the Pod's ServiceAccount]
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long)]
    pub context: Option<String>,
}

impl Connection {
    pub async fn client(self) -> Result<Client> {
        Ok(ClientBuilder::try_from(self.config().await?)?.with_layer(&DEADLINES).build())
    }

    /// Returns a factory of clients whose requests are counted in `requests`, whose writes take turns by namespace, and whose watches
    /// are opened again when they have sent nothing for `watch_silence`.
    pub async fn for_manager(self, requests: &RequestCounter, watch_silence: Duration) -> Result<Connect> {
        let (config, requests) = (self.config().await?, requests.clone());
        let deadlines = ResponseDeadlines { watch_silence, ..DEADLINES };
        let fair_writes = FairWrites::default();
        Ok(Connect::new(move || {
            let builder = ClientBuilder::try_from(config.clone())?;
            Ok(builder.with_layer(&fair_writes).with_layer(&deadlines).with_layer(&requests).build())
        }))
    }

    async fn config(self) -> Result<Config> {
        let Self { kubeconfig, context } = self;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let mut config = match (kubeconfig, &options.context) {
            (Some(path), _) => {
                let kubeconfig =
                    Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await?,
            (None, None) => Config::infer()
                .await
                .context("finding the kubeconfig of the management cluster; set it with --kubeconfig")?,
        };
        choose_proxy(&mut config)?;
        config
            .headers
            .push((USER_AGENT, HeaderValue::from_static(concat!("chandler/", env!("CARGO_PKG_VERSION")))));
        Ok(config)
    }
}

/// Applies `NO_PROXY` to the API server, as kubectl does; kube applies it to the proxy. The error names no credentials.
fn choose_proxy(config: &mut Config) -> Result<()> {
    let Some(proxy) = &config.proxy_url else { return Ok(()) };
    let from_environment = ["HTTPS_PROXY", "https_proxy"]
        .into_iter()
        .any(|name| std::env::var(name).is_ok_and(|text| text.parse().is_ok_and(|url: Uri| url == *proxy)));
    if from_environment && ProxyMatcher::from_env().intercept(&config.cluster_url).is_none() {
        config.proxy_url = None;
        return Ok(());
    }
    match proxy.scheme_str() {
        Some("http" | "https" | "socks5") => Ok(()),
        scheme => bail!(
            "the proxy of the management cluster has the scheme {}; use http, https or socks5",
            scheme.unwrap_or("(none)")
        ),
    }
}

/// Selects one namespace or all.
#[derive(Clone, Debug, Args)]
pub struct NamespaceArgs {
    /// Namespace of the objects [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Use all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl NamespaceArgs {
    /// Returns the namespace. `None` means all namespaces.
    pub fn resolve(self, client: &Client) -> Option<String> {
        let Self { namespace, all_namespaces } = self;
        (!all_namespaces).then(|| namespace.unwrap_or_else(|| client.default_namespace().to_owned()))
    }
}
