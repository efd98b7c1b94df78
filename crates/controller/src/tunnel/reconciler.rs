//! Reconciles a ClusterTunnel: its spec, the Secret for its nodes, the kubeconfig of its Cluster, and its status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    FIELD_MANAGER,
    reasons::TunnelReason,
    tunnel::{CONNECTED, ClusterTunnel, KUBECONFIG_PROXIED, TUNNEL_FINALIZER},
};
use chandler_core::{
    conditions::{find, is_true},
    identity::cluster_owner,
    jitter::jitter,
    tunnel::{
        KubeconfigState, OwnHubs, TunnelCluster, TunnelObservation, TunnelProblem, TunnelReport,
        desired_spec, has_duplicate_id, next_check, report, without_hubs,
    },
};
use chandler_tunnel::TunnelKeys;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::{Value, json};

use super::{
    KIND, TunnelContext,
    bootstrap::{self, Bootstrap},
    cluster_key, facts,
    finalize::{self, Finalize},
    keys::KeysUnavailable,
    kubeconfig,
};
use crate::{ManagementError, ReconcileError, queue, status};

/// How soon a Secret that is being deleted is read again.
const SOON: Duration = Duration::from_secs(5);
/// How soon the cache is expected to show a Cluster that exists.
const NOT_CACHED: Duration = Duration::from_secs(10);

/// Returns the certificates that agents trust, in one form wherever they were read from.
pub fn ca_bundle(keys: &TunnelKeys) -> String {
    format!("{}\n", keys.ca_bundle().trim())
}

pub async fn reconcile(
    tunnel: Arc<ClusterTunnel>,
    context: Arc<TunnelContext>,
) -> Result<Action, ReconcileError> {
    let cluster = context.clusters.get(&cluster_key(&tunnel));
    if cluster.as_ref().is_some_and(|cluster| !context.serves(cluster)) {
        return Ok(Action::await_change());
    }
    let reconciler = Reconciler { context: &context, tunnel: &tunnel };
    if tunnel.metadata.deletion_timestamp.is_some()
        && let Some(action) = reconciler.finalize(cluster.as_deref()).await?
    {
        return Ok(action);
    }
    if let Some(cluster) = cluster {
        return reconciler.reconcile(&cluster).await;
    }
    let missing = TunnelProblem::ClusterMissing(cluster_key(&tunnel).to_string());
    reconciler.update_status(&tunnel, None, Some(&missing)).await?;
    Ok(queue::resync(&*tunnel))
}

struct Reconciler<'a> {
    context: &'a TunnelContext,
    /// As the watch showed it.
    tunnel: &'a ClusterTunnel,
}

impl Reconciler<'_> {
    /// Finalizes a ClusterTunnel that is being deleted. Returns `None` if it is reconciled as before.
    async fn finalize(&self, cluster: Option<&DynamicObject>) -> Result<Option<Action>, ReconcileError> {
        match finalize::decide(self.tunnel, cluster) {
            Finalize::Serve => return Ok(None),
            Finalize::Wait => return Ok(Some(queue::resync(self.tunnel))),
            Finalize::ConnectDirectly => finalize::connect_directly(self.context, self.tunnel).await?,
            Finalize::RemoveFinalizer => {}
            Finalize::RemoveFinalizerIfGone => {
                if finalize::cluster_exists(&self.context.client, self.tunnel).await? {
                    return Ok(Some(Action::requeue(NOT_CACHED)));
                }
            }
        }
        finalize::remove_finalizer(self.context, self.tunnel).await?;
        Ok(Some(Action::await_change()))
    }

    async fn reconcile(&self, object: &DynamicObject) -> Result<Action, ReconcileError> {
        let cluster = facts(object);
        let owner = finalize::owner_uid(self.tunnel);
        let is_stale = owner.is_some_and(|uid| object.uid().as_deref() != Some(uid));
        // A paused Cluster may be moving to another management cluster. The ClusterTunnel of an earlier Cluster with the same
        // name is deleted by Kubernetes; this Cluster must not use its id, which agents of the other cluster know.
        if is_stale || cluster.paused || status::is_paused(self.tunnel) {
            return Ok(queue::resync(self.tunnel));
        }
        let known = self.context.store.state();
        if has_duplicate_id(self.tunnel, known.iter().map(|other| &**other)) {
            self.update_status(self.tunnel, None, Some(&TunnelProblem::DuplicateId)).await?;
            return Ok(queue::resync(self.tunnel));
        }
        let keys = match self.context.keys.get().await {
            Ok(keys) => keys,
            Err(KeysUnavailable::Management(error)) => return Err(error.into()),
            Err(KeysUnavailable::Invalid(problem)) => {
                self.update_status(self.tunnel, None, Some(&problem)).await?;
                return Ok(queue::resync(self.tunnel));
            }
        };
        let updated = if cluster.deleting { None } else { self.update(object, &cluster, &keys).await? };
        let tunnel = updated.as_ref().unwrap_or(self.tunnel);
        let bootstrap = if cluster.deleting {
            Bootstrap::Ready
        } else {
            bootstrap::write(self.context, tunnel, &keys).await?
        };
        let kubeconfig = kubeconfig::proxy(self.context, tunnel, &keys).await?;
        if kubeconfig.written {
            self.report_write(tunnel);
        }
        let problem = match &bootstrap {
            Bootstrap::Conflict(problem) => Some(problem),
            Bootstrap::Ready | Bootstrap::BeingDeleted => None,
        };
        self.update_status(tunnel, Some(&kubeconfig.state), problem).await?;
        let next = self.next(&cluster, &kubeconfig.state);
        Ok(Action::requeue(if matches!(bootstrap, Bootstrap::BeingDeleted) { SOON } else { next }))
    }

    fn next(&self, cluster: &TunnelCluster, kubeconfig: &KubeconfigState) -> Duration {
        let resync = queue::RESYNC.mul_f64(0.9 + 0.2 * jitter(&self.tunnel.uid().unwrap_or_default()));
        next_check(cluster, kubeconfig, resync, Timestamp::now())
    }

    /// Writes what differs from the desired ClusterTunnel: endpoint, own hubs, owner and finalizer. Returns what was written.
    async fn update(
        &self,
        object: &DynamicObject,
        cluster: &TunnelCluster,
        keys: &TunnelKeys,
    ) -> Result<Option<ClusterTunnel>, ReconcileError> {
        let addresses = &self.context.options.hub_addresses;
        let ca_bundle = ca_bundle(keys);
        let own = OwnHubs { addresses, ca_bundle: &ca_bundle };
        let current = &self.tunnel.spec;
        let desired = desired_spec(current, cluster.endpoint.as_deref(), &own);
        let (mut metadata, mut spec) = (json!({}), json!({}));
        if desired.endpoint != current.endpoint {
            spec["endpoint"] = json!(desired.endpoint);
        }
        if desired.hubs != current.hubs {
            spec["hubs"] = json!(desired.hubs);
        }
        if !self.tunnel.finalizers().iter().any(|finalizer| finalizer == TUNNEL_FINALIZER) {
            let finalizers = self.tunnel.finalizers().iter().map(String::as_str).chain([TUNNEL_FINALIZER]);
            metadata["finalizers"] = json!(finalizers.collect::<Vec<_>>());
        }
        if finalize::owner_uid(self.tunnel).is_none() {
            let owner = cluster_owner(&current.cluster_name, &object.uid().unwrap_or_default());
            let owners = self.tunnel.owner_references().iter().chain([&owner]);
            metadata["ownerReferences"] = json!(owners.collect::<Vec<_>>());
        }
        if is_empty(&metadata) && is_empty(&spec) {
            return Ok(None);
        }
        metadata["resourceVersion"] = json!(self.tunnel.resource_version());
        let name = self.tunnel.name_any();
        let patch = json!({"metadata": metadata, "spec": spec});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = status::api(&self.context.client, self.tunnel);
        match api.patch(&name, &parameters, &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(written)),
            Err(source) => Err(ManagementError::Write { kind: KIND, name, source }.into()),
        }
    }

    /// Reports that the kubeconfig was written: for the first time, or again because Cluster API has replaced it.
    fn report_write(&self, tunnel: &ClusterTunnel) {
        let repaired = is_true(&TunnelReport::of(tunnel).conditions, KUBECONFIG_PROXIED);
        let (change, note) = if repaired {
            (
                "repaired",
                "Wrote the hub into the kubeconfig of the Cluster again, which had another proxy or none",
            )
        } else {
            ("added", "Wrote the hub into the kubeconfig of the Cluster")
        };
        self.context.metrics.kubeconfig_written(change);
        self.context.events.normal(tunnel, "KubeconfigProxied", note);
    }

    /// Writes the status if it has changed, and removes the entries of replicas of the hub that have died.
    async fn update_status(
        &self,
        tunnel: &ClusterTunnel,
        kubeconfig: Option<&KubeconfigState>,
        problem: Option<&TunnelProblem>,
    ) -> Result<(), ReconcileError> {
        let now = Timestamp::now();
        let dead = match &tunnel.status {
            Some(status) => self.context.leases.dead_in(status).await,
            None => BTreeMap::new(),
        };
        let observed = TunnelObservation { tunnel, kubeconfig, problem, dead_hubs: &dead };
        let (before, report) = (TunnelReport::of(tunnel), report(&observed, now));
        let mut written = None;
        if report != before {
            written = status::write(&self.context.client, tunnel, &report).await?;
            if written.is_none() {
                return Ok(());
            }
            self.publish_transitions(tunnel, &before.conditions, &report.conditions);
        }
        if dead.is_empty() {
            return Ok(());
        }
        self.remove_hubs(written.as_ref().unwrap_or(tunnel), &dead).await
    }

    async fn remove_hubs(
        &self,
        tunnel: &ClusterTunnel,
        dead: &BTreeMap<String, Option<Timestamp>>,
    ) -> Result<(), ReconcileError> {
        let Some(current) = &tunnel.status else { return Ok(()) };
        let left = without_hubs(current, &dead.keys().collect());
        // With the resource version: a list is replaced as a whole, and hubs write to it too.
        let patch = json!({
            "metadata": {"resourceVersion": tunnel.resource_version()},
            "status": {"agents": left.agents, "joins": left.joins},
        });
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let name = tunnel.name_any();
        let api = status::api(&self.context.client, tunnel);
        match api.patch_status(&name, &parameters, &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(source) => Err(ManagementError::Write { kind: KIND, name, source }.into()),
        }
    }

    /// Publishes Events: the first agent has connected, the last one has disconnected, or a problem of [`ALARMING`] is new.
    fn publish_transitions(&self, tunnel: &ClusterTunnel, before: &[Condition], after: &[Condition]) {
        let events = &self.context.events;
        // The hub publishes the joins.
        if is_true(after, CONNECTED) && !is_true(before, CONNECTED) {
            events.normal(tunnel, CONNECTED, "An agent is connected");
        }
        let message =
            |type_| find(after, type_).map(|condition| condition.message.as_str()).unwrap_or_default();
        if is_true(before, CONNECTED) && !is_true(after, CONNECTED) {
            events.warning(tunnel, "Disconnected", message(CONNECTED));
        }
        for (type_, reason) in ALARMING {
            let has = |conditions| {
                find(conditions, type_).is_some_and(|condition| condition.reason == reason.as_str())
            };
            if has(after) && !has(before) {
                events.warning(tunnel, reason.as_str(), message(type_));
            }
        }
    }
}

/// Conditions and reasons that an administrator has to fix.
const ALARMING: [(&str, TunnelReason); 4] = [
    ("Ready", TunnelReason::DuplicateId),
    ("Ready", TunnelReason::SecretConflict),
    ("Ready", TunnelReason::InvalidKeys),
    (KUBECONFIG_PROXIED, TunnelReason::KubeconfigRefused),
];

fn is_empty(value: &Value) -> bool {
    value.as_object().is_none_or(serde_json::Map::is_empty)
}
