//! Runs attacks: their servers, their Clusters and their objects, some of which change all the time.

use std::{any::Any, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chandler_sandbox::{apply::apply, hostile::api_server::InternalServer, provider::cluster_resource};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{
    objects,
    outcome::{self, Outcome},
    tenant::{NewCluster, Tenant},
};

/// The label of all objects of attacks, and its value.
pub const LABEL: &str = "bench";
pub const LABEL_VALUE: &str = "attack";
/// A text in objects that is replaced by a number that grows, so that Chandler tries again what it has given up.
pub const ROUND: &str = "__ROUND__";
/// How often such objects change.
const RENEWAL: Duration = Duration::from_secs(15);
/// How long deleted objects may take to disappear.
const REMOVAL: Duration = Duration::from_secs(45);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Where an attack starts from.
pub struct Site<'a> {
    pub tenant: &'a Tenant<'a>,
    /// The folder for charts and certificates.
    pub dir: PathBuf,
    /// The address of the manager's hooks.
    pub hooks: SocketAddr,
}

impl Site<'_> {
    /// Returns a `HelmChartProxy` of the attacker. Its values change all the time.
    pub fn chart_proxy(&self, name: &str, cluster: (&str, &str), fields: &Value) -> Value {
        let mut proxy = objects::chart_proxy(self.tenant.namespace, name, cluster, fields);
        if proxy["spec"]["valuesTemplate"].is_null() {
            proxy["spec"]["valuesTemplate"] = json!(format!("greeting: round-{ROUND}\n"));
        }
        proxy
    }

    /// Returns an `ExtensionInstance` of the attacker.
    pub fn instance(&self, name: &str, cluster: &str, fields: &Value) -> Value {
        objects::instance(self.tenant.namespace, name, cluster, fields)
    }

    /// Returns a Cluster whose API server is that of the attacker.
    pub fn own_cluster(&self, name: impl Into<String>) -> AttackCluster {
        let (name, kubeconfig) = (name.into(), self.tenant.plane.kubeconfig().to_owned());
        AttackCluster { group: name.clone(), name, kubeconfig }
    }
}

/// A Cluster that attacks, or with which one does.
#[derive(Clone, Debug)]
pub struct AttackCluster {
    pub name: String,
    pub group: String,
    pub kubeconfig: String,
}

/// What an attack consists of.
#[derive(Default)]
pub struct Attack {
    pub clusters: Vec<AttackCluster>,
    /// Objects in the order in which they are applied.
    pub objects: Vec<Value>,
    /// Servers and tasks that have to run meanwhile.
    pub running: Vec<Box<dyn Any + Send>>,
    /// Servers to which the manager must not connect.
    pub internal: Vec<InternalServer>,
}

/// Attacks that run until they are stopped.
pub struct RunningAttacks<'a> {
    site: &'a Site<'a>,
    attacks: Vec<Attack>,
    renewal: AbortOnDropHandle<()>,
}

impl<'a> RunningAttacks<'a> {
    /// Creates all objects of attacks, and changes some of them all the time.
    pub async fn start(site: &'a Site<'a>, attacks: Vec<Attack>) -> Result<Self> {
        let (client, namespace) = (site.tenant.client(), site.tenant.namespace);
        for AttackCluster { name, group, kubeconfig } in attacks.iter().flat_map(|attack| &attack.clusters) {
            let labels = json!({LABEL: LABEL_VALUE});
            NewCluster { name, group, kubeconfig }.register(client, namespace, labels).await?;
        }
        let objects: Vec<_> =
            attacks.iter().flat_map(|attack| &attack.objects).cloned().map(labeled).collect();
        for object in &objects {
            apply(client, &at_round(object, 0)?).await?;
        }
        let changing = objects.into_iter().filter(is_changing).collect();
        let renewal = AbortOnDropHandle::new(tokio::spawn(renew(client.clone(), changing)));
        Ok(Self { site, attacks, renewal })
    }

    /// Returns what has become of the attacks so far.
    pub async fn outcome(&self) -> Result<Outcome> {
        let internal = self.attacks.iter().flat_map(|attack| &attack.internal);
        let connections = internal.map(InternalServer::connections).sum();
        outcome::read(self.site.tenant.client(), self.site.tenant.namespace, connections).await
    }

    /// Stops the attacks and deletes their objects. The Clusters are deleted first, so that nothing has to be uninstalled from those
    /// that do not answer.
    pub async fn stop(self) -> Result<()> {
        drop(self.renewal);
        let (client, namespace) = (self.site.tenant.client(), self.site.tenant.namespace);
        for resource in removed_kinds() {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            api.delete_collection(&DeleteParams::default(), &of_attacks())
                .await
                .with_context(|| format!("deleting {} of the attacks", resource.plural))?;
        }
        wait_removed(client, namespace).await
    }
}

/// Selects the objects of attacks.
pub fn of_attacks() -> ListParams {
    ListParams::default().labels(&format!("{LABEL}={LABEL_VALUE}"))
}

fn removed_kinds() -> Vec<ApiResource> {
    [vec![cluster_resource()], outcome::placement_kinds(), outcome::other_kinds()].concat()
}

/// Waits until the placements of attacks are removed. If that takes too long, the rest stays.
async fn wait_removed(client: &Client, namespace: &str) -> Result<()> {
    let deadline = Instant::now() + REMOVAL;
    for resource in outcome::placement_kinds() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        while Instant::now() < deadline && !api.list_metadata(&of_attacks()).await?.items.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Changes objects all the time.
async fn renew(client: Client, objects: Vec<Value>) {
    for round in 1_u32.. {
        tokio::time::sleep(RENEWAL).await;
        for object in &objects {
            let renewed = match at_round(object, round) {
                Ok(object) => apply(&client, &object).await.map_err(anyhow::Error::from),
                Err(error) => Err(error),
            };
            if let Err(error) = renewed {
                tracing::warn!(%error, "an attack was not renewed");
            }
        }
    }
}

fn labeled(mut object: Value) -> Value {
    object["metadata"]["labels"][LABEL] = json!(LABEL_VALUE);
    object
}

fn is_changing(object: &Value) -> bool {
    object.to_string().contains(ROUND)
}

/// Returns an object with the number of a round.
fn at_round(object: &Value, round: u32) -> Result<Value> {
    serde_json::from_str(&object.to_string().replace(ROUND, &round.to_string())).context("renewing an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_changes_with_the_round() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"values": format!("x: {ROUND}\n")}});
        assert!(is_changing(&object) && !is_changing(&json!({"spec": {}})));
        let second = at_round(&labeled(object), 2).unwrap();
        assert_eq!(second["spec"]["values"], "x: 2\n");
        assert_eq!(second["metadata"]["labels"]["bench"], "attack");
    }
}
