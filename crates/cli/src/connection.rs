//! How commands reach the management cluster.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use chandler_controller::Connect;
use chandler_telemetry::RequestCounter;
use clap::Args;
use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Which management cluster is meant.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Kubeconfig of the management cluster [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long)]
    pub context: Option<String>,
}

impl Connection {
    pub async fn client(self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Makes clients whose requests are counted.
    pub async fn counted(self, requests: &RequestCounter) -> Result<Connect> {
        let (config, requests) = (self.config().await?, requests.clone());
        Ok(Connect::new(move || Ok(ClientBuilder::try_from(config.clone())?.with_layer(&requests).build())))
    }

    async fn config(self) -> Result<Config> {
        let Self { kubeconfig, context } = self;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let mut config = match (kubeconfig, &options.context) {
            (Some(path), _) => {
                let read =
                    Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))?;
                Config::from_custom_kubeconfig(read, &options).await?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await?,
            (None, None) => {
                Config::infer().await.context("finding the management cluster; name it with --kubeconfig")?
            }
        };
        config
            .headers
            .push((USER_AGENT, HeaderValue::from_static(concat!("chandler/", env!("CARGO_PKG_VERSION")))));
        Ok(config)
    }
}

/// Which namespaces are looked at.
#[derive(Clone, Debug, Args)]
pub struct Scope {
    /// Namespace to look at [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Look at all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl Scope {
    /// The namespace, or None for all.
    pub fn resolve(self, client: &Client) -> Option<String> {
        let Self { namespace, all_namespaces } = self;
        (!all_namespaces).then(|| namespace.unwrap_or_else(|| client.default_namespace().to_owned()))
    }
}
