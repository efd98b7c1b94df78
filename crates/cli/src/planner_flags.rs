//! How `chandler plan` and `chandler diff` read packages and clusters: as the manager does.

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use chandler_cli_support::{programs, user_dirs};
use chandler_controller::{PlannerOptions, Platform};
use chandler_core::{
    change_plan::DiffView,
    tunnel::{ProxyPolicy, ProxyUser},
};
use clap::Args;
use kube::Client;

use crate::{manager::PlatformArgs, packages::SourceArgs, tunnel_flags::proxy_prefix};

#[derive(Debug, Args)]
pub struct PlannerArgs {
    /// Binary of a package tool; can be repeated, the package format selects the tool
    /// [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL")]
    tool: Vec<PathBuf>,
    /// Binary of the template service [default: the first --tool]
    #[arg(long, value_name = "PATH")]
    templates: Option<PathBuf>,
    /// Allow kubeconfigs whose proxy-url begins with this, such as `http://proxy.example:3128` or `socks5://`; can be repeated
    #[arg(long = "allow-proxy-url", id = "allow_proxy_url", value_name = "PREFIX", value_parser = proxy_prefix)]
    allowed_proxies: Vec<String>,
    /// Show values that come from Secrets where other objects contain them; the data of Secrets stay masked
    #[arg(long)]
    show_secret_values: bool,
    #[command(flatten)]
    platform: PlatformArgs,
    #[command(flatten)]
    source: SourceArgs,
}

impl PlannerArgs {
    /// Returns the options. Without `diffs`, plans only name the objects that change.
    pub async fn options(self, client: &Client, diffs: bool) -> Result<PlannerOptions> {
        let Self { tool, templates, allowed_proxies, show_secret_values, platform, source } = self;
        let PlatformArgs { namespace, version, version_from } = platform;
        let tools = programs::package_tools(tool)?;
        let templates = programs::template_service(templates, &tools)?;
        let platform = Platform::new(namespace, version);
        if let Some(from) = version_from {
            platform.read(client, &from).await;
        }
        Ok(PlannerOptions {
            namespace: None,
            platform,
            addresses: source.cluster_addresses(),
            packages: Arc::new(source.open()?),
            tools,
            templates,
            store: user_dirs::cache_folder("plan")?,
            proxies: ProxyPolicy { hub: None, allowed: allowed_proxies, user: ProxyUser::Command },
            view: DiffView { texts: diffs, show_secret_values },
        })
    }
}
