//! `chandler tunnel import`: connects a cluster that exists.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use chandler_api::{
    FIELD_MANAGER,
    capi::{CLUSTER_GROUP, CLUSTER_NAME_LABEL, CLUSTER_VERSION},
    tunnel::{AGENT_CONFIG_KEY, AGENT_POD_KEY, TUNNEL_SECRET_SUFFIX},
};
use chandler_view::tunnels::{self, read_cluster};
use clap::Args;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    READ_INTERVAL, Target, TargetArgs, agent_deployment,
    child_kubeconfig::{self, ChildKubeconfig},
    proxied_kubeconfig::secret_name,
};
use crate::connection::Connection;

#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Kubeconfig of the cluster that is imported [default: that of the management cluster]
    #[arg(long, value_name = "FILE")]
    child_kubeconfig: Option<PathBuf>,
    /// Context of the cluster that is imported [default: the current context of --child-kubeconfig]
    #[arg(long, value_name = "CONTEXT", required_unless_present = "child_kubeconfig")]
    child_context: Option<String>,
    /// Namespace of the agents on the cluster that is imported
    #[arg(long, default_value = agent_deployment::NAME)]
    agent_namespace: String,
    /// Image of the agent [default: the one of the manager]
    #[arg(long)]
    agent_image: Option<String>,
    /// Time in seconds to wait until the tunnel is ready; 0 does not wait
    #[arg(long, default_value_t = 300)]
    wait_seconds: u64,
}

/// How long the manager may take to create the Secret with the files of the agent.
const SECRET_TIMEOUT: Duration = Duration::from_mins(1);

pub async fn run(arguments: ImportArgs) -> Result<()> {
    let ImportArgs { target, child_kubeconfig, child_context, agent_namespace, agent_image, wait_seconds } =
        arguments;
    let kubeconfig = child_kubeconfig.or_else(|| target.connection.kubeconfig.clone());
    let target = target.open().await?;
    let child = child_kubeconfig::read(&target.cluster, kubeconfig.as_deref(), child_context.as_deref())?;
    let child_client = Connection { kubeconfig, context: child_context }.client().await?;
    let version = child_client.apiserver_version().await;
    let version = version.context("connecting to the cluster that is imported")?.git_version;
    println!("The cluster to import answers: Kubernetes {version}.");

    let (cluster, clusters) = read_cluster(&target.client, &target.namespace, &target.cluster).await?;
    if let Some(patch) = cluster_patch(&cluster, &child)? {
        clusters
            .patch(&target.cluster, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("enabling the tunnel of Cluster {}", target.named()))?;
    }
    println!("The tunnel of Cluster {} is enabled.", target.named());
    let files = wait_files(&target).await?;
    let image = match agent_image {
        Some(image) => image,
        None => agent_deployment::image(&files.pod)?,
    };
    install_agent(&child_client, &agent_namespace, &image, &files).await?;
    println!("Deployment {agent_namespace}/{} is applied to the cluster.", agent_deployment::NAME);
    if create_kubeconfig(&target, &cluster, &child).await? {
        println!("Secret {}/{} is created.", target.namespace, secret_name(&target.cluster));
    } else {
        println!("Secret {}/{} exists, and is kept.", target.namespace, secret_name(&target.cluster));
    }
    if wait_seconds > 0 {
        target.wait_ready(Duration::from_secs(wait_seconds)).await?;
        println!("The tunnel of Cluster {} is ready.", target.named());
    }
    Ok(())
}

/// Returns the patch that enables the tunnel and sets the endpoint, or `None` if there is nothing to change. Clients name the
/// endpoint when they ask the hub for a connection, so it must be the server of the kubeconfig.
fn cluster_patch(cluster: &DynamicObject, child: &ChildKubeconfig) -> Result<Option<Value>> {
    let ChildKubeconfig { host, port, .. } = child;
    let endpoint = &cluster.data["spec"]["controlPlaneEndpoint"];
    let known = endpoint["host"].as_str().filter(|host| !host.is_empty());
    let mut patch = tunnels::enable(cluster);
    match known {
        None => {
            let spec = json!({"controlPlaneEndpoint": {"host": host, "port": port}});
            patch.get_or_insert_with(|| json!({}))["spec"] = spec;
        }
        Some(known) if known == host && endpoint["port"] == *port => {}
        Some(known) => bail!(
            "the Cluster has the endpoint {known}:{}, and the kubeconfig of the cluster the server {host}:{port}: they must be \
             equal",
            endpoint["port"]
        ),
    }
    Ok(patch)
}

/// The files of the agent.
struct AgentFiles {
    configuration: SecretString,
    pod: String,
    /// Changes with the content.
    revision: String,
}

/// Waits until the manager has created the Secret with the files of the agent.
async fn wait_files(target: &Target) -> Result<AgentFiles> {
    let name = format!("{}{TUNNEL_SECRET_SUFFIX}", target.cluster);
    let secrets: Api<Secret> = Api::namespaced(target.client.clone(), &target.namespace);
    let deadline = Instant::now() + SECRET_TIMEOUT;
    loop {
        let secret = secrets.get_opt(&name).await;
        let secret = secret.with_context(|| format!("reading Secret {}/{name}", target.namespace))?;
        if let Some(files) = secret.and_then(agent_files) {
            return Ok(files);
        }
        if Instant::now() >= deadline {
            bail!(
                "no manager has created Secret {}/{name} within {} s: check with `chandler doctor` that one is running with \
                 --tunnel-hub-address",
                target.namespace,
                SECRET_TIMEOUT.as_secs()
            );
        }
        sleep(READ_INTERVAL).await;
    }
}

fn agent_files(secret: Secret) -> Option<AgentFiles> {
    let revision = secret.resource_version().unwrap_or_default();
    let mut data = secret.data?;
    let mut text = |key: &str| String::from_utf8(data.remove(key)?.0).ok();
    Some(AgentFiles { configuration: text(AGENT_CONFIG_KEY)?.into(), pod: text(AGENT_POD_KEY)?, revision })
}

async fn install_agent(client: &Client, namespace: &str, image: &str, files: &AgentFiles) -> Result<()> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let configuration = agent_deployment::configuration(&files.configuration)?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    namespaces
        .patch(namespace, &params, &Patch::Apply(agent_deployment::namespace(namespace)))
        .await
        .with_context(|| format!("creating the namespace {namespace} on the cluster"))?;
    secrets
        .patch(
            agent_deployment::NAME,
            &params,
            &Patch::Apply(agent_deployment::secret(namespace, &configuration)),
        )
        .await
        .with_context(|| {
            format!("creating the Secret of the agent in the namespace {namespace} on the cluster")
        })?;
    let deployment = agent_deployment::deployment(namespace, image, &files.revision);
    deployments
        .patch(agent_deployment::NAME, &params, &Patch::Apply(deployment))
        .await
        .with_context(|| format!("creating the agent in the namespace {namespace} on the cluster"))?;
    Ok(())
}

/// Creates the kubeconfig Secret of the Cluster. Returns `false` if it exists: Cluster API or a user manages it.
async fn create_kubeconfig(
    target: &Target,
    cluster: &DynamicObject,
    child: &ChildKubeconfig,
) -> Result<bool> {
    let name = secret_name(&target.cluster);
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": target.namespace,
            // Cluster API ignores Secrets without this label.
            "labels": {CLUSTER_NAME_LABEL: target.cluster},
            "ownerReferences": [{
                "apiVersion": format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}"), "kind": "Cluster",
                "name": target.cluster, "uid": cluster.uid(),
            }],
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": child.text.expose_secret()},
    }))
    .map_err(|_| anyhow::anyhow!("the kubeconfig Secret cannot be composed"))?;
    let secrets: Api<Secret> = Api::namespaced(target.client.clone(), &target.namespace);
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error).with_context(|| format!("creating Secret {}/{name}", target.namespace)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "blue"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_endpoint_is_set_once_and_must_match() {
        let child =
            ChildKubeconfig { text: "canary".to_owned().into(), host: "10.0.0.10".to_owned(), port: 6443 };
        let labels = json!({"labels": {"chandler.dev/tunnel": "enabled"}});
        let endpoint = json!({"controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443}});
        let patch = |spec: &Value| cluster_patch(&cluster(spec), &child);
        assert_eq!(patch(&json!({})).unwrap(), Some(json!({"metadata": labels, "spec": endpoint})));
        assert_eq!(patch(&endpoint).unwrap(), Some(json!({"metadata": labels})));
        let other = json!({"controlPlaneEndpoint": {"host": "10.0.0.10", "port": 443}});
        let error = patch(&other).unwrap_err().to_string();
        assert!(error.contains("10.0.0.10:443") && error.contains("10.0.0.10:6443"), "{error}");
    }
}
