//! Reads ClusterTunnels and Clusters from the management cluster.

use chandler_api::{
    capi::{CLUSTER_GROUP, CLUSTER_VERSION},
    tunnel::ClusterTunnel,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::{Progress, paging::list_all};

/// Tunnels cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "listing ClusterTunnels; are Chandler's CRDs installed (`chandler crds`), and may you list them?"
    )]
    List { source: Box<kube::Error> },
    #[error("reading {kind} {namespace}/{name}")]
    Read { kind: &'static str, namespace: String, name: String, source: Box<kube::Error> },
    #[error(
        "Cluster {namespace}/{name} has no tunnel; enable it with `chandler tunnel enable {name} --namespace {namespace}`"
    )]
    NoTunnel { namespace: String, name: String },
    #[error(
        "there is no Cluster {name} in namespace {namespace}; list them with `kubectl get clusters --all-namespaces`"
    )]
    NoCluster { namespace: String, name: String },
}

/// Lists the ClusterTunnels of a namespace, sorted by namespace and name. `None` means all namespaces.
pub async fn list_tunnels(
    client: &Client,
    namespace: Option<&str>,
    progress: &dyn Progress,
) -> Result<Vec<ClusterTunnel>, Error> {
    let api: Api<ClusterTunnel> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let all = list_all(api, ListParams::default(), "ClusterTunnels", progress).await;
    let mut all = all.map_err(|error| Error::List { source: Box::new(error) })?;
    all.sort_by_key(|tunnel: &ClusterTunnel| (tunnel.namespace(), tunnel.name_any()));
    Ok(all)
}

/// Returns the ClusterTunnel of a Cluster, which has the same name.
pub async fn read_tunnel(client: &Client, namespace: &str, cluster: &str) -> Result<ClusterTunnel, Error> {
    let api: Api<ClusterTunnel> = Api::namespaced(client.clone(), namespace);
    let (namespace, name) = (namespace.to_owned(), cluster.to_owned());
    match api.get_opt(&name).await {
        Ok(Some(tunnel)) => Ok(tunnel),
        Ok(None) => Err(Error::NoTunnel { namespace, name }),
        Err(error) => Err(Error::Read { kind: "ClusterTunnel", namespace, name, source: Box::new(error) }),
    }
}

/// Returns a Cluster, and the API for changes of it.
pub async fn read_cluster(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(DynamicObject, Api<DynamicObject>), Error> {
    let kind = GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    match api.get_opt(&name).await {
        Ok(Some(cluster)) => Ok((cluster, api)),
        Ok(None) => Err(Error::NoCluster { namespace, name }),
        Err(error) => Err(Error::Read { kind: "Cluster", namespace, name, source: Box::new(error) }),
    }
}
