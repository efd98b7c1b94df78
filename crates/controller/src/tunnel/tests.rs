//! Reconciles tunnels against an API server in memory: what is written, and what never is.

use std::sync::Arc;

use chandler_api::{
    capi::DELETE_FOR_MOVE_ANNOTATION,
    tunnel::{ClusterTunnel, TUNNEL_LABEL},
};
use chandler_core::{cluster_deletion::DEFAULT_UNINSTALL_TIMEOUT, conditions};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::{
    api::DynamicObject,
    runtime::{controller::Action, reflector::store::Writer, watcher::Event},
};
use serde_json::{Value, json};

use super::{
    HubLeases, KeysSource, ManagementCa, TunnelContext, TunnelOptions, Tunnels, cluster, reconciler,
};
use crate::{
    ReconcileError,
    clusters::{self, Clusters},
    events::Events,
    fake_api_server::FakeApiServer,
    metrics::Metrics,
};

const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/clusters/blue";
const TUNNEL: &str = "/apis/chandler.dev/v1alpha1/namespaces/fleet/clustertunnels/blue";
const KUBECONFIG: &str = "/api/v1/namespaces/fleet/secrets/blue-kubeconfig";
const BOOTSTRAP: &str = "/api/v1/namespaces/fleet/secrets/blue-tunnel";
const KEYS: &str = "/api/v1/namespaces/system/secrets/chandler-tunnel-keys";
const ROOT_CA: &str = "/api/v1/namespaces/system/configmaps/kube-root-ca.crt";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases/chandler-hubs";
/// Longer than a replica lives without a renewal.
const LEASE_CHECK: std::time::Duration = std::time::Duration::from_secs(61);
const DIRECT: &str = "apiVersion: v1\nclusters:\n- cluster:\n    server: https://10.0.0.7:6443\n  name: blue\ncontexts:\n\
                      - context:\n    cluster: blue\n    user: admin\n  name: c\ncurrent-context: c\nkind: Config\n\
                      users:\n- name: admin\n  user:\n    token: t\n";

struct World {
    server: FakeApiServer,
    cluster: Value,
    clusters: Writer<DynamicObject>,
    tunnels: Writer<ClusterTunnel>,
    context: Arc<TunnelContext>,
}

impl World {
    fn new() -> Self {
        let server = FakeApiServer::default();
        server.put(ROOT_CA, root_ca());
        let client = server.client();
        let options = TunnelOptions {
            namespace: "system".to_owned(),
            hub_addresses: vec!["hub.example:443".to_owned()],
            proxy_service: "chandler-hub.system.svc:8132".to_owned(),
            agent_image: "agent:1".to_owned(),
        };
        let (clusters, tunnels) = (Writer::new(clusters::resource()), Writer::new(()));
        let context = Arc::new(TunnelContext {
            events: Events::new(client.clone()),
            metrics: Metrics::new(),
            watch_filter: None,
            store: tunnels.as_reader(),
            clusters: Clusters::new(clusters.as_reader(), DEFAULT_UNINSTALL_TIMEOUT),
            keys: KeysSource::new(client.clone(), &options),
            leases: HubLeases::new(client.clone(), "system".to_owned()),
            management_ca: ManagementCa::new(client.clone(), "system".to_owned()),
            client,
            options,
        });
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {
                "name": "blue", "namespace": "fleet", "uid": "cluster", "labels": {TUNNEL_LABEL: "enabled"},
            },
            "spec": {"controlPlaneEndpoint": {"host": "10.0.0.7", "port": 6443}},
        });
        Self { server, cluster, clusters, tunnels, context }
    }

    /// Shows the caches what the API server has, then reconciles the Cluster and its ClusterTunnel until nothing is written.
    async fn settle(&mut self) -> Vec<String> {
        let mut writes = Vec::new();
        for _ in 0..10 {
            self.reconcile().await;
            let new = self.server.take_writes();
            if new.is_empty() {
                return writes;
            }
            writes.extend(new);
        }
        panic!("it never settles: {writes:?}");
    }

    async fn reconcile(&mut self) -> Option<Action> {
        self.server.put(CLUSTER, self.cluster.clone());
        let cluster = self.cluster_with("cluster");
        self.clusters.apply_watcher_event(&Event::Apply(cluster.clone()));
        let known = self.tunnels.as_reader().state();
        for gone in known.iter().filter(|_| self.server.get(TUNNEL).is_none()) {
            self.tunnels.apply_watcher_event(&Event::Delete((**gone).clone()));
        }
        if let Some(tunnel) = self.tunnel() {
            self.tunnels.apply_watcher_event(&Event::Apply(tunnel));
        }
        cluster::reconcile(Arc::new(cluster), self.context.clone()).await.unwrap();
        let tunnel = self.tunnel()?;
        Some(reconciler::reconcile(Arc::new(tunnel), self.context.clone()).await.unwrap())
    }

    /// Returns the Cluster with a uid.
    fn cluster_with(&self, uid: &str) -> DynamicObject {
        let mut cluster: DynamicObject = serde_json::from_value(self.cluster.clone()).unwrap();
        cluster.metadata.uid = Some(uid.to_owned());
        cluster
    }

    /// Lets the API server and the cache have different Clusters: those with these uids, or none.
    fn show_clusters(&mut self, stored: Option<&str>, cached: Option<&str>) {
        match stored {
            Some(uid) => self.server.put(CLUSTER, json!(self.cluster_with(uid))),
            None => self.server.remove(CLUSTER),
        }
        let event = match cached {
            Some(uid) => Event::Apply(self.cluster_with(uid)),
            None => Event::Delete(self.cluster_with("cluster")),
        };
        self.clusters.apply_watcher_event(&event);
    }

    /// Reconciles the ClusterTunnel with what the cache of Clusters shows.
    async fn reconcile_tunnel(&self) -> Result<Action, ReconcileError> {
        reconciler::reconcile(Arc::new(self.tunnel().unwrap()), self.context.clone()).await
    }

    fn tunnel(&self) -> Option<ClusterTunnel> {
        self.server.get(TUNNEL).map(|tunnel| serde_json::from_value(tunnel).unwrap())
    }

    fn change_tunnel(&self, change: impl FnOnce(&mut Value)) {
        let mut tunnel = self.server.get(TUNNEL).unwrap();
        change(&mut tunnel);
        self.server.put(TUNNEL, tunnel);
    }

    fn put_kubeconfig(&self, text: &str) {
        self.server.put(KUBECONFIG, kubeconfig_secret(text));
    }

    fn kubeconfig(&self) -> String {
        let secret = self.server.get(KUBECONFIG).unwrap();
        let value: ByteString = serde_json::from_value(secret["data"]["value"].clone()).unwrap();
        String::from_utf8(value.0).unwrap()
    }

    fn reason(&self, type_: &str) -> String {
        let conditions = self.tunnel().unwrap().status.unwrap().conditions;
        conditions::find(&conditions, type_).unwrap().reason.clone()
    }
}

fn kubeconfig_secret(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": "blue-kubeconfig", "namespace": "fleet", "labels": {"cluster.x-k8s.io/cluster-name": "blue"},
            "ownerReferences": [{"kind": "KubeadmControlPlane", "name": "blue", "uid": "kcp", "apiVersion": "x/v1"}],
        },
        "data": {"value": ByteString(text.as_bytes().to_vec())},
    })
}

fn root_ca() -> Value {
    let pem = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": pem}})
}

fn agent(hub: &str) -> Value {
    json!({"hub": hub, "connection": "1", "epoch": 1, "since": "2020-01-01T00:00:00Z", "node": "n", "version": "1"})
}

fn lease(renewed: Timestamp) -> Value {
    json!({"metadata": {"name": "chandler-hubs", "annotations": {"hub.chandler.dev/hub-1": renewed.to_string()}}})
}

#[tokio::test]
async fn an_enabled_cluster_gets_a_tunnel_and_a_secret_but_no_kubeconfig() {
    let mut world = World::new();
    let writes = world.settle().await;
    assert!(writes.iter().all(|write| !write.contains("kubeconfig")), "{writes:?}");
    let tunnel = world.tunnel().unwrap();
    assert_eq!(tunnel.spec.id.len(), 32);
    assert_eq!(tunnel.spec.endpoint.as_deref(), Some("10.0.0.7:6443"));
    assert_eq!(tunnel.metadata.owner_references.unwrap()[0].uid, "cluster");
    assert_eq!(world.reason("KubeconfigProxied"), "WaitingForKubeconfig");
    let secret = world.server.get(BOOTSTRAP).unwrap();
    assert_eq!(
        (&secret["type"], &secret["metadata"]["ownerReferences"][0]["kind"]),
        (&json!("Opaque"), &json!("ClusterTunnel"))
    );
    assert!(secret["data"]["agent.yaml"].is_string() && secret["data"]["pod.yaml"].is_string());
    assert!(world.server.get(KEYS).is_some());
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::requeue(std::time::Duration::from_secs(5)), "the kubeconfig appears soon");
}

#[tokio::test]
async fn the_kubeconfig_is_proxied_and_repaired_and_nothing_else_of_the_secret_changes() {
    let mut world = World::new();
    world.put_kubeconfig(DIRECT);
    world.settle().await;
    let proxied = world.kubeconfig();
    assert!(proxied.contains("proxy-url: \"http://fleet.blue:"), "{proxied}");
    assert!(proxied.contains("@chandler-hub.system.svc:8132\""), "{proxied}");
    let (written, created) = (world.server.get(KUBECONFIG).unwrap(), kubeconfig_secret(DIRECT));
    for field in ["type", "/metadata/labels", "/metadata/ownerReferences"] {
        let field = if field.starts_with('/') { field.to_owned() } else { format!("/{field}") };
        assert_eq!(written.pointer(&field), created.pointer(&field), "{field}");
    }
    assert_eq!(world.reason("KubeconfigProxied"), "Proxied");
    // Cluster API replaces it.
    world.put_kubeconfig(DIRECT);
    let writes = world.settle().await;
    assert_eq!(writes, [format!("PATCH {KUBECONFIG}")]);
    assert_eq!(world.kubeconfig(), proxied);
    // A revocation changes the password.
    world.change_tunnel(|tunnel| tunnel["spec"]["epoch"] = 2.into());
    world.settle().await;
    assert_ne!(world.kubeconfig(), proxied);
}

#[tokio::test]
async fn no_kubeconfig_is_proxied_until_the_certificates_of_the_management_cluster_are_known() {
    let mut world = World::new();
    world.server.remove(ROOT_CA);
    world.put_kubeconfig(DIRECT);
    world.settle().await;
    assert_eq!(world.kubeconfig(), DIRECT);
    let conditions = world.tunnel().unwrap().status.unwrap().conditions;
    let proxied = conditions::find(&conditions, "KubeconfigProxied").unwrap();
    assert_eq!((proxied.status.as_str(), proxied.reason.as_str()), ("Unknown", "WaitingForKubeconfig"));
    assert!(proxied.message.contains("kube-root-ca.crt"), "{}", proxied.message);
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::requeue(std::time::Duration::from_secs(5)), "it is retried soon");

    world.server.put(ROOT_CA, root_ca());
    world.settle().await;
    assert!(world.kubeconfig().contains("proxy-url"));
    assert_eq!(world.reason("KubeconfigProxied"), "Proxied");
}

#[tokio::test]
async fn a_kubeconfig_that_changes_while_it_is_edited_is_edited_again() {
    let mut world = World::new();
    world.put_kubeconfig(DIRECT);
    let renewed = DIRECT.replace("token: t", "token: renewed");
    world.server.overtake(KUBECONFIG, kubeconfig_secret(&renewed));
    world.settle().await;
    let text = world.kubeconfig();
    assert!(text.contains("token: renewed") && text.contains("proxy-url"), "{text}");
}

#[tokio::test]
async fn keys_are_created_once_and_never_overwritten() {
    let mut world = World::new();
    world.settle().await;
    let keys = world.server.get(KEYS).unwrap();
    world.context = {
        let mut again = World::new();
        again.server = world.server.clone();
        let client = again.server.client();
        let context = Arc::get_mut(&mut again.context).unwrap();
        context.keys = KeysSource::new(client.clone(), &context.options);
        context.client = client;
        context.store = world.tunnels.as_reader();
        context.clusters = Clusters::new(world.clusters.as_reader(), DEFAULT_UNINSTALL_TIMEOUT);
        again.context
    };
    assert_eq!(world.settle().await, Vec::<String>::new(), "another manager finds everything up to date");
    assert_eq!(world.server.get(KEYS).unwrap(), keys);
    let mut broken = keys.clone();
    broken["data"]["ca.key"] = json!(ByteString(b"broken".to_vec()));
    world.server.put(KEYS, broken.clone());
    let client = world.server.client();
    let context = Arc::get_mut(&mut world.context).unwrap();
    context.keys = KeysSource::new(client, &context.options);
    world.settle().await;
    assert_eq!(world.reason("Ready"), "InvalidKeys");
    assert_eq!(world.server.get(KEYS).unwrap()["data"], broken["data"]);
}

#[tokio::test]
async fn a_secret_of_a_user_is_not_overwritten() {
    let mut world = World::new();
    world.server.put(BOOTSTRAP, json!({"metadata": {"name": "blue-tunnel"}, "data": {"agent.yaml": "eA=="}}));
    world.settle().await;
    assert_eq!(world.server.get(BOOTSTRAP).unwrap()["data"], json!({"agent.yaml": "eA=="}));
    assert_eq!(world.reason("Ready"), "SecretConflict");
}

#[tokio::test]
async fn a_tunnel_with_the_id_of_an_older_one_gets_no_token() {
    let mut world = World::new();
    world.settle().await;
    world.server.remove(BOOTSTRAP);
    let created = |tunnel: &mut Value, time: &str| tunnel["metadata"]["creationTimestamp"] = json!(time);
    world.change_tunnel(|tunnel| created(tunnel, "2026-01-02T00:00:00Z"));
    let mut older = world.server.get(TUNNEL).unwrap();
    created(&mut older, "2026-01-01T00:00:00Z");
    older["metadata"]["namespace"] = json!("other");
    world.tunnels.apply_watcher_event(&Event::Apply(serde_json::from_value(older).unwrap()));
    world.settle().await;
    assert_eq!(world.reason("Ready"), "DuplicateId");
    assert!(world.server.get(BOOTSTRAP).is_none());
}

#[tokio::test]
async fn a_disabled_tunnel_leaves_a_direct_kubeconfig() {
    let mut world = World::new();
    world.put_kubeconfig(DIRECT);
    world.settle().await;
    world.cluster["metadata"]["labels"] = json!({});
    world.settle().await;
    assert_eq!(world.kubeconfig(), DIRECT);
    assert!(world.tunnel().is_none());
}

#[tokio::test]
async fn a_cluster_that_is_deleted_or_paused_keeps_its_tunnel() {
    for (field, value) in
        [("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")), ("/spec/paused", json!(true))]
    {
        let mut world = World::new();
        world.put_kubeconfig(DIRECT);
        world.settle().await;
        let (parent, name) = field.rsplit_once('/').unwrap();
        world.cluster.pointer_mut(parent).unwrap()[name] = value;
        world.cluster["metadata"]["labels"] = json!({});
        // A foreground deletion of the Cluster deletes the ClusterTunnel first.
        world.change_tunnel(|tunnel| tunnel["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        world.settle().await;
        assert!(world.tunnel().is_some(), "{field}");
        assert!(world.kubeconfig().contains("proxy-url"), "{field}");
    }
}

#[tokio::test]
async fn a_deleted_tunnel_keeps_its_finalizer_until_the_api_server_does_not_have_its_cluster() {
    let rows = [
        ("the Cluster is not cached yet", Some("cluster"), None, true),
        ("an earlier Cluster is still cached", Some("cluster"), Some("earlier"), true),
        ("the Cluster is gone", None, None, false),
        ("another Cluster has its name", Some("later"), Some("later"), false),
        ("another one that is not cached yet has its name", Some("later"), None, false),
    ];
    for (what, stored, cached, is_kept) in rows {
        let mut world = World::new();
        world.settle().await;
        world.change_tunnel(|tunnel| tunnel["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        world.show_clusters(stored, cached);
        let action = world.reconcile_tunnel().await.unwrap();
        assert_eq!(world.tunnel().is_some(), is_kept, "{what}");
        let soon = Action::requeue(std::time::Duration::from_secs(10));
        assert_eq!(action, if is_kept { soon } else { Action::await_change() }, "{what}");
    }
}

#[tokio::test]
async fn a_deleted_tunnel_keeps_its_finalizer_while_its_cluster_cannot_be_read() {
    let mut world = World::new();
    world.settle().await;
    world.change_tunnel(|tunnel| tunnel["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    world.show_clusters(None, None);
    world.server.fail_reads(CLUSTER);
    assert!(world.reconcile_tunnel().await.is_err());
    assert!(world.tunnel().is_some());
}

#[tokio::test]
async fn a_deleted_tunnel_without_an_owner_belongs_to_any_cluster_with_its_name() {
    let mut world = World::new();
    world.settle().await;
    world.change_tunnel(|tunnel| {
        tunnel["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        tunnel["metadata"]["ownerReferences"] = json!([]);
    });
    world.show_clusters(Some("any"), None);
    world.reconcile_tunnel().await.unwrap();
    assert!(world.tunnel().is_some());
}

#[tokio::test]
async fn a_moved_tunnel_loses_its_finalizer_whether_its_cluster_can_be_read_or_not() {
    let mut world = World::new();
    world.settle().await;
    world.change_tunnel(|tunnel| {
        tunnel["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        tunnel["metadata"]["annotations"] = json!({DELETE_FOR_MOVE_ANNOTATION: ""});
    });
    world.show_clusters(Some("cluster"), None);
    world.server.fail_reads(CLUSTER);
    world.reconcile_tunnel().await.unwrap();
    assert!(world.tunnel().is_none());
}

#[tokio::test]
async fn no_tunnel_is_created_for_a_cluster_that_only_the_cache_still_has() {
    let deleted = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let rows = [
        ("it is gone", None),
        ("another one has its name", Some(("/metadata/uid", json!("later")))),
        ("it is being deleted", Some(deleted)),
        ("it is being moved", Some(("/spec/paused", json!(true)))),
        ("its tunnel is disabled", Some(("/metadata/labels", json!({})))),
    ];
    for (what, change) in rows {
        let mut world = World::new();
        if let Some((field, value)) = change {
            let mut stored = world.cluster.clone();
            let (parent, name) = field.rsplit_once('/').unwrap();
            stored.pointer_mut(parent).unwrap()[name] = value;
            world.server.put(CLUSTER, stored);
        }
        let cached = Arc::new(world.cluster_with("cluster"));
        cluster::reconcile(cached, world.context.clone()).await.unwrap();
        assert_eq!(world.server.take_writes(), Vec::<String>::new(), "{what}");
        world.settle().await;
        assert!(world.tunnel().is_some(), "{what}, but the next one needs it");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_no_replica_is_alive() {
    let mut world = World::new();
    world.put_kubeconfig(DIRECT);
    world.settle().await;
    world.change_tunnel(|tunnel| tunnel["status"]["agents"] = json!([agent("hub-1")]));
    world.settle().await;
    assert_eq!(world.reason("Connected"), "Connected", "it gets time to create the Lease");
    tokio::time::advance(LEASE_CHECK).await;
    world.settle().await;
    assert!(world.tunnel().unwrap().status.unwrap().agents.is_empty());
    assert_eq!(world.reason("Connected"), "NotConnected");
}

/// The clock of the replica is years behind, which does not matter.
#[tokio::test(start_paused = true)]
async fn entries_of_a_replica_that_died_are_removed() {
    let mut world = World::new();
    world.put_kubeconfig(DIRECT);
    world.settle().await;
    let renewed: Timestamp = "2020-01-01T10:00:00Z".parse().unwrap();
    world.server.put(LEASE, lease("2020-01-01T09:59:00Z".parse().unwrap()));
    world.change_tunnel(|tunnel| tunnel["status"]["agents"] = json!([agent("hub-1")]));
    world.settle().await;
    assert_eq!(world.reason("Ready"), "Ready");
    let cluster: DynamicObject = serde_json::from_value(world.cluster.clone()).unwrap();
    let tunnels = Tunnels(Some(world.tunnels.as_reader()));
    assert_eq!(tunnels.problem(&cluster), None);
    assert_eq!(tunnels.counts().unwrap().connected, 1);

    world.server.put(LEASE, lease(renewed));
    tokio::time::advance(LEASE_CHECK).await;
    world.settle().await;
    assert_eq!(world.reason("Ready"), "Ready", "it has renewed its Lease");
    tokio::time::advance(LEASE_CHECK).await;
    world.settle().await;
    let status = world.tunnel().unwrap().status.unwrap();
    assert!(status.agents.is_empty());
    assert_eq!(status.last_seen.unwrap().0, renewed);
    assert_eq!(world.reason("Connected"), "NotConnected");
    let problem = tunnels.problem(&cluster).unwrap();
    assert_eq!(problem, "tunnel not connected since 2020-01-01T10:00:00Z");
    assert_eq!(tunnels.counts().unwrap().disconnected, 1);
    assert_eq!(Tunnels::default().problem(&cluster), None);
}
