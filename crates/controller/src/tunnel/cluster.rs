//! Reconciles a Cluster: creates or deletes its ClusterTunnel.

use std::sync::Arc;

use chandler_api::{FIELD_MANAGER, tunnel::ClusterTunnel};
use chandler_core::{
    identity::{ClusterKey, cluster_owner},
    tunnel::{OwnHubs, TunnelPlan, new_tunnel, plan_tunnel},
};
use chandler_tunnel::TunnelId;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::{KIND, TunnelContext, facts, keys::KeysUnavailable, reconciler::ca_bundle};
use crate::{ManagementError, ReconcileError, clusters, queue};

pub async fn reconcile(
    cluster: Arc<DynamicObject>,
    context: Arc<TunnelContext>,
) -> Result<Action, ReconcileError> {
    let Some(key) = clusters::key(&cluster) else { return Ok(Action::await_change()) };
    if !context.serves(&cluster) {
        return Ok(Action::await_change());
    }
    let existing = context.store.get(&ObjectRef::new(&key.name).within(&key.namespace));
    match plan_tunnel(&facts(&cluster), existing.as_deref()) {
        TunnelPlan::Keep => return Ok(Action::await_change()),
        TunnelPlan::Create => {
            if needs_tunnel(&context, &key, &cluster).await? {
                create(&context, &key, &cluster).await?;
            }
        }
        TunnelPlan::Delete => {
            if let Some(tunnel) = existing {
                delete(&context, &tunnel).await?;
            }
        }
    }
    Ok(queue::resync(&*cluster))
}

/// Returns whether the API server has the Cluster too, and it needs a ClusterTunnel. The cache may still show a Cluster that is
/// gone, as is its ClusterTunnel. A new one would change the kubeconfig of another Cluster that has the name now.
async fn needs_tunnel(
    context: &TunnelContext,
    key: &ClusterKey,
    cached: &DynamicObject,
) -> Result<bool, ManagementError> {
    let current = clusters::read(&context.client, key).await?;
    let current = current.filter(|current| current.uid() == cached.uid());
    Ok(current.is_some_and(|current| plan_tunnel(&facts(&current), None) == TunnelPlan::Create))
}

async fn create(
    context: &TunnelContext,
    key: &ClusterKey,
    cluster: &DynamicObject,
) -> Result<(), ReconcileError> {
    let keys = match context.keys.get().await {
        Ok(keys) => keys,
        Err(KeysUnavailable::Management(error)) => return Err(error.into()),
        Err(KeysUnavailable::Invalid(problem)) => {
            // There is no ClusterTunnel yet whose status could say it.
            tracing::error!(cluster = %key, "cannot create a ClusterTunnel: {problem}");
            return Ok(());
        }
    };
    let id = TunnelId::random().map_err(|error| ReconcileError::NewTunnel(error.to_string()))?;
    let addresses = &context.options.hub_addresses;
    let ca_bundle = ca_bundle(&keys);
    let own = OwnHubs { addresses, ca_bundle: &ca_bundle };
    let owner = cluster_owner(&key.name, &cluster.uid().unwrap_or_default());
    let tunnel = new_tunnel(key, owner, id.to_string(), facts(cluster).endpoint, &own);
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let api: Api<ClusterTunnel> = Api::namespaced(context.client.clone(), &key.namespace);
    match api.create(&parameters, &tunnel).await {
        Ok(created) => {
            context.events.normal(&created, "Created", "Created, because the Cluster enables its tunnel");
            Ok(())
        }
        // The watch has not shown it yet.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(ManagementError::Write { kind: KIND, name: key.name.clone(), source }.into()),
    }
}

/// Deletes a ClusterTunnel unless it has changed since the watch showed it. Its finalizer removes the proxy of the kubeconfig.
async fn delete(context: &TunnelContext, tunnel: &ClusterTunnel) -> Result<(), ReconcileError> {
    let name = tunnel.name_any();
    let unchanged = Preconditions { resource_version: tunnel.resource_version(), uid: tunnel.uid() };
    let api: Api<ClusterTunnel> = crate::status::api(&context.client, tunnel);
    match api.delete(&name, &DeleteParams::default().preconditions(unchanged)).await {
        Ok(_) => {
            context.events.normal(
                tunnel,
                "Disabled",
                "Deleted, because the Cluster does not enable its tunnel",
            );
            Ok(())
        }
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(ManagementError::Write { kind: KIND, name, source }.into()),
    }
}
