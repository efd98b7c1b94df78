//! The ClusterTunnel that a Cluster should have.

use chandler_api::{
    capi::CLUSTER_NAME_LABEL,
    tunnel::{
        ClusterTunnel, ClusterTunnelSpec, DEFAULT_CONNECTIONS, DEFAULT_TARGET, TUNNEL_FINALIZER, TunnelHub,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::TunnelCluster;
use crate::{identity::ClusterKey, naming::label_value};

/// What has to be done about the ClusterTunnel of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelPlan {
    Create,
    Delete,
    Keep,
}

/// Returns what has to be done about the ClusterTunnel of a Cluster. A Cluster that is being deleted keeps it: Cluster API
/// still has to reach the cluster. A paused Cluster may be moving to another management cluster, so nothing is changed.
pub fn plan_tunnel(cluster: &TunnelCluster, existing: Option<&ClusterTunnel>) -> TunnelPlan {
    if cluster.paused || cluster.deleting {
        return TunnelPlan::Keep;
    }
    match existing {
        None if cluster.enabled => TunnelPlan::Create,
        Some(tunnel) if !cluster.enabled && tunnel.metadata.deletion_timestamp.is_none() => {
            TunnelPlan::Delete
        }
        _ => TunnelPlan::Keep,
    }
}

/// Returns whether another ClusterTunnel has the id of this one and precedes it, in the order of the hub: by age, then by
/// namespace and name. A user who may create ClusterTunnels in one namespace could otherwise get join tokens for the tunnel of
/// another.
pub fn has_duplicate_id<'a>(
    tunnel: &ClusterTunnel,
    others: impl IntoIterator<Item = &'a ClusterTunnel>,
) -> bool {
    let own = precedence(tunnel);
    others.into_iter().any(|other| other.spec.id == tunnel.spec.id && precedence(other) < own)
}

fn precedence(tunnel: &ClusterTunnel) -> (bool, Option<Timestamp>, Option<&str>, Option<&str>) {
    let ObjectMeta { creation_timestamp, namespace, name, .. } = &tunnel.metadata;
    let created = creation_timestamp.as_ref().map(|created| created.0);
    (created.is_none(), created, namespace.as_deref(), name.as_deref())
}

/// The hubs of this installation.
#[derive(Clone, Copy, Debug)]
pub struct OwnHubs<'a> {
    /// Host and port, as agents reach them.
    pub addresses: &'a [String],
    pub ca_bundle: &'a str,
}

/// Returns a new ClusterTunnel for a Cluster. `id` is random.
pub fn new_tunnel(
    key: &ClusterKey,
    owner: OwnerReference,
    id: String,
    endpoint: Option<String>,
    own: &OwnHubs<'_>,
) -> ClusterTunnel {
    let spec = ClusterTunnelSpec {
        id,
        epoch: 1,
        cluster_name: key.name.clone(),
        endpoint,
        hubs: hubs(&[], own),
        target: DEFAULT_TARGET.to_owned(),
        proxy: None,
        connections: DEFAULT_CONNECTIONS,
    };
    ClusterTunnel {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some([(CLUSTER_NAME_LABEL.to_owned(), label_value(&key.name))].into()),
            finalizers: Some(vec![TUNNEL_FINALIZER.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// Returns the spec of a ClusterTunnel with the current endpoint and the current hubs of this installation. Everything else
/// is left unchanged, and so are hubs of other installations. An endpoint that the Cluster does not have any more is kept.
pub fn desired_spec(
    current: &ClusterTunnelSpec,
    endpoint: Option<&str>,
    own: &OwnHubs<'_>,
) -> ClusterTunnelSpec {
    let endpoint = endpoint.map(str::to_owned).or_else(|| current.endpoint.clone());
    ClusterTunnelSpec { endpoint, hubs: hubs(&current.hubs, own), ..current.clone() }
}

/// Returns the own hubs, then those of `current` that another authority has signed.
fn hubs(current: &[TunnelHub], own: &OwnHubs<'_>) -> Vec<TunnelHub> {
    let mut own_hubs: Vec<TunnelHub> = Vec::new();
    for address in own.addresses {
        if own_hubs.iter().all(|hub| hub.address != *address) {
            let ca_bundle = own.ca_bundle.to_owned();
            own_hubs.push(TunnelHub { address: address.clone(), ca_bundle, token: None });
        }
    }
    let is_foreign = |hub: &&TunnelHub| {
        hub.ca_bundle.trim() != own.ca_bundle.trim() && !own.addresses.contains(&hub.address)
    };
    let foreign: Vec<_> = current.iter().filter(is_foreign).cloned().collect();
    own_hubs.into_iter().chain(foreign).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube_core::ResourceExt as _;

    use super::*;
    use crate::identity::cluster_owner;

    fn hub(address: &str, ca_bundle: &str, token: Option<&str>) -> TunnelHub {
        TunnelHub {
            address: address.to_owned(),
            ca_bundle: ca_bundle.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    fn tunnel(addresses: &[&str]) -> ClusterTunnel {
        let addresses: Vec<_> = addresses.iter().map(|one| (*one).to_owned()).collect();
        let own = OwnHubs { addresses: &addresses, ca_bundle: "own" };
        let key = ClusterKey::new("fleet", "blue");
        new_tunnel(&key, cluster_owner("blue", "1"), "0".repeat(32), None, &own)
    }

    #[test]
    fn a_tunnel_follows_its_cluster_unless_that_is_paused_or_deleting() {
        let live = tunnel(&["hub:443"]);
        let mut going = live.clone();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        // enabled, paused, deleting, existing tunnel, plan
        let rows = [
            (true, false, false, None, TunnelPlan::Create),
            (true, true, false, None, TunnelPlan::Keep),
            (true, false, true, None, TunnelPlan::Keep),
            (true, false, false, Some(&live), TunnelPlan::Keep),
            (false, false, false, None, TunnelPlan::Keep),
            (false, false, false, Some(&live), TunnelPlan::Delete),
            (false, false, false, Some(&going), TunnelPlan::Keep),
            (false, true, false, Some(&live), TunnelPlan::Keep),
            (false, false, true, Some(&live), TunnelPlan::Keep),
        ];
        for (number, (enabled, paused, deleting, existing, plan)) in rows.into_iter().enumerate() {
            let cluster = TunnelCluster { enabled, paused, deleting, ..TunnelCluster::default() };
            assert_eq!(plan_tunnel(&cluster, existing), plan, "row {number}");
        }
    }

    #[test]
    fn only_the_oldest_of_several_tunnels_may_use_an_id() {
        let made = |namespace: &str, second: i64, id: char| {
            let mut made = tunnel(&["hub:443"]);
            made.metadata.namespace = Some(namespace.to_owned());
            made.metadata.creation_timestamp = Timestamp::from_second(second).ok().map(Time);
            made.spec.id = id.to_string().repeat(32);
            made
        };
        let own = made("b", 10, 'a');
        // another tunnel, whether it is the one that may use the id
        let rows = [
            (own.clone(), false),
            (made("a", 5, 'b'), false),
            (made("c", 5, 'a'), true),
            (made("a", 10, 'a'), true),
            (made("c", 10, 'a'), false),
            (made("a", 11, 'a'), false),
        ];
        for (number, (other, duplicate)) in rows.iter().enumerate() {
            assert_eq!(has_duplicate_id(&own, [&own, other]), *duplicate, "row {number}");
        }
    }

    #[test]
    fn a_new_tunnel_has_the_name_and_an_owner_reference_of_its_cluster() {
        let tunnel = tunnel(&["hub.example:443", "hub.example:443"]);
        assert_eq!((tunnel.name_any().as_str(), tunnel.spec.cluster_name.as_str()), ("blue", "blue"));
        assert_eq!(tunnel.spec.hubs, [hub("hub.example:443", "own", None)]);
        assert_eq!(tunnel.spec.epoch, 1);
        assert_eq!(tunnel.owner_references()[0].kind, "Cluster");
        assert_eq!(tunnel.labels()[CLUSTER_NAME_LABEL], "blue");
    }

    #[test]
    fn hubs_of_other_installations_and_settings_of_users_are_kept() {
        let mut current = tunnel(&["old:443"]).spec;
        current.hubs.push(hub("other:443", "other", Some("token")));
        // The same address as an own hub, written before a move to this installation.
        current.hubs.push(hub("new:443", "stale", Some("token")));
        current.proxy = Some("http://proxy:3128".to_owned());
        current.connections = 3;
        let addresses = ["new:443".to_owned()];
        let own = OwnHubs { addresses: &addresses, ca_bundle: "own\n" };
        let desired = desired_spec(&current, Some("10.0.0.7:6443"), &own);
        assert_eq!(desired.hubs, [hub("new:443", "own\n", None), hub("other:443", "other", Some("token"))]);
        assert_eq!(desired.endpoint.as_deref(), Some("10.0.0.7:6443"));
        assert_eq!((desired.proxy, desired.connections), (current.proxy, 3));
        let again = desired_spec(&tunnel(&["new:443"]).spec, None, &own);
        assert_eq!(again.endpoint, None);
    }

    #[test]
    fn an_endpoint_is_not_forgotten() {
        let mut current = tunnel(&["hub:443"]).spec;
        current.endpoint = Some("10.0.0.7:6443".to_owned());
        let addresses = ["hub:443".to_owned()];
        let own = OwnHubs { addresses: &addresses, ca_bundle: "own" };
        assert_eq!(desired_spec(&current, None, &own), current);
    }
}
