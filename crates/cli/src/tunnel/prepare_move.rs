//! `chandler tunnel prepare-move`: lets the agents of a cluster join the hubs of another management cluster.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use chandler_api::tunnel::{ClusterTunnel, TunnelHub};
use chandler_tunnel::{
    JoinToken, TunnelId, TunnelKeys, TunnelOwner, keys::KEYS_SECRET, token::TOKEN_LIFETIME,
};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::TargetArgs;
use crate::{connection::Connection, tunnel_flags::host_and_port};

#[derive(Debug, Args)]
pub struct PrepareMoveArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Kubeconfig of the management cluster that the Cluster will be moved to
    #[arg(long, value_name = "FILE")]
    to_kubeconfig: PathBuf,
    /// Context of --to-kubeconfig [default: the current context]
    #[arg(long, value_name = "CONTEXT")]
    to_context: Option<String>,
    /// Namespace of the manager there
    #[arg(long, value_name = "NAMESPACE", default_value = "chandler-system")]
    to_manager_namespace: String,
    /// Address of the hub there, as agents reach it; can be repeated
    #[arg(long, value_name = "HOST:PORT", required = true, value_parser = host_and_port)]
    hub: Vec<String>,
}

pub async fn run(arguments: PrepareMoveArgs) -> Result<()> {
    let PrepareMoveArgs { target, to_kubeconfig, to_context, to_manager_namespace, hub } = arguments;
    let target = target.open().await?;
    let tunnel = target.tunnel().await?;
    let destination = Connection { kubeconfig: Some(to_kubeconfig), context: to_context }.client().await?;
    let keys = read_keys(&destination, &to_manager_namespace).await?;
    let patch = patch(&tunnel, &keys, &hub, Timestamp::now())?;
    let api: Api<ClusterTunnel> = Api::namespaced(target.client.clone(), &target.namespace);
    api.patch(&target.cluster, &PatchParams::default(), &Patch::Merge(patch)).await.with_context(|| {
        format!("adding hubs to ClusterTunnel {}; if it has changed, run it again", target.named())
    })?;
    println!(
        "The agents of Cluster {} will join {} too. Move the Cluster within a day.",
        target.named(),
        hub.join(", ")
    );
    Ok(())
}

async fn read_keys(client: &Client, namespace: &str) -> Result<TunnelKeys> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(KEYS_SECRET).await;
    let secret = secret.with_context(|| {
        format!("reading Secret {namespace}/{KEYS_SECRET} of the other management cluster")
    })?;
    let Some(secret) = secret else {
        bail!(
            "the other management cluster has no Secret {namespace}/{KEYS_SECRET}: enable tunnels there first, or name \
             the namespace of its manager with --to-manager-namespace"
        );
    };
    let files: BTreeMap<_, _> =
        secret.data.unwrap_or_default().into_iter().map(|(name, content)| (name, content.0)).collect();
    TunnelKeys::from_files(&files).with_context(|| format!("reading Secret {namespace}/{KEYS_SECRET}"))
}

/// Returns the patch that adds the hubs. The token is for this tunnel, Cluster and epoch, which the move does not change.
fn patch(tunnel: &ClusterTunnel, keys: &TunnelKeys, hubs: &[String], now: Timestamp) -> Result<Value> {
    let id = tunnel.spec.id.parse::<TunnelId>().context("reading the id of the ClusterTunnel")?;
    let expires = now.checked_add(TOKEN_LIFETIME).context("computing when the token expires")?;
    let namespace = tunnel.namespace().context("reading the namespace of the ClusterTunnel")?;
    let owner = TunnelOwner::of(&namespace, &tunnel.spec.cluster_name);
    let token = JoinToken { tunnel: id, owner, epoch: tunnel.spec.epoch, expires }.sign(&keys.signing);
    let kept = tunnel.spec.hubs.iter().filter(|hub| !hubs.contains(&hub.address)).cloned();
    let added = hubs.iter().map(|address| TunnelHub {
        address: address.clone(),
        ca_bundle: keys.ca_bundle().to_owned(),
        token: Some(token.expose_secret().to_owned()),
    });
    let all: Vec<_> = kept.chain(added).collect();
    Ok(json!({"metadata": {"resourceVersion": tunnel.resource_version()}, "spec": {"hubs": all}}))
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::HubNames;
    use chandler_view::fixtures::tunnel;

    use super::*;

    #[test]
    fn hubs_of_the_other_installation_are_added_with_a_token() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let hubs = ["new.example:443".to_owned()];
        let keys = TunnelKeys::generate(&HubNames::new(&hubs, "chandler-system"), now).unwrap();
        let before = tunnel("blue");
        let mut after = before.clone();
        // Twice: an expired token is replaced.
        for later in [now, now + jiff::SignedDuration::from_hours(1)] {
            let patch = patch(&after, &keys, &hubs, later).unwrap();
            after.spec.hubs = serde_json::from_value(patch["spec"]["hubs"].clone()).unwrap();
            assert_eq!(after.spec.hubs.len(), 2);
            assert_eq!(after.spec.hubs[0], before.spec.hubs[0]);
            let token = after.spec.hubs[1].token.clone().unwrap();
            let token = JoinToken::verify(&token, &keys.signing, later).unwrap();
            assert_eq!((token.tunnel.to_string(), token.epoch), (before.spec.id.clone(), 1));
            assert_eq!(token.owner, TunnelOwner::of(&before.namespace().unwrap(), "blue"));
        }
    }
}
