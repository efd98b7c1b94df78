//! Clusters are handed over to Fleet: its objects are created, kept in sync, taken over from the Cluster API Add-on Provider
//! for Fleet (CAAPF), and removed.

use chandler_e2e::{
    fleet::{self, AGENT_NAMESPACE, FleetControllers},
    management_cluster::ManagementCluster,
    wait::{eventually, until},
    world::{World, config_value},
};
use chandler_sandbox::{apply, crds::wait_served, dynamic_api, plane::Plane, process::Child};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const CLUSTER_API: &str = "cluster.x-k8s.io/v1beta2";
const CAAPF_FINALIZER: &str = "fleet.addons.cluster.x-k8s.io";

/// A management cluster with a class in namespace `classes` and a Cluster `blue` of this class in namespace `team`.
struct Fixture {
    management: ManagementCluster,
    client: Client,
}

impl Fixture {
    async fn new(name: &str, finalizers: &[&str]) -> Self {
        let management = ManagementCluster::new(name).await;
        let client = management.client.clone();
        apply::apply(&client, &class_without_schema()).await.unwrap();
        wait_served(&client, &dynamic_api::resource(CLUSTER_API, "ClusterClass")).await.unwrap();
        fleet::bind_role(&client).await;
        for namespace in ["team", "classes"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            apply::apply(&client, &namespace).await.unwrap();
        }
        let class = json!({
            "apiVersion": CLUSTER_API, "kind": "ClusterClass", "metadata": metadata("base", "classes", finalizers),
        });
        let cluster = json!({
            "apiVersion": CLUSTER_API, "kind": "Cluster", "metadata": metadata("blue", "team", finalizers),
            "spec": {"topology": {"classRef": {"name": "base", "namespace": "classes"}, "version": "v1.34.4"}},
        });
        for object in [class, cluster] {
            apply::apply(&client, &object).await.unwrap();
        }
        let fixture = Self { management, client };
        let initialized = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        let clusters = fixture.clusters();
        clusters.patch_status("blue", &PatchParams::default(), &Patch::Merge(initialized)).await.unwrap();
        fixture
    }

    fn clusters(&self) -> Api<DynamicObject> {
        dynamic_api::namespaced(&self.client, "team", CLUSTER_API, "Cluster")
    }

    fn start_manager(&self) -> Child {
        self.management.start_manager_with(&["--fleet"])
    }

    /// Waits until an object of Fleet exists.
    async fn wait(&self, namespace: &str, kind: &str, name: &str) -> Value {
        let api = fleet::objects(&self.client, namespace, kind);
        let object = eventually(&format!("{kind} {namespace}/{name} exists"), || async {
            api.get_opt(name).await.unwrap()
        })
        .await;
        serde_json::to_value(object).unwrap()
    }

    async fn fleet_cluster(&self) -> DynamicObject {
        fleet::objects(&self.client, "team", "Cluster").get("blue").await.unwrap()
    }
}

fn metadata(name: &str, namespace: &str, finalizers: &[&str]) -> Value {
    json!({"name": name, "namespace": namespace, "labels": {"tier": "one"}, "finalizers": finalizers})
}

/// Returns a CRD for ClusterClass that accepts every field.
fn class_without_schema() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterclasses.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ClusterClass", "plural": "clusterclasses"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn class_labels() -> Value {
    json!({
        "clusterclass-name.fleet.addons.cluster.x-k8s.io": "base",
        "clusterclass-namespace.fleet.addons.cluster.x-k8s.io": "classes",
    })
}

async fn wait_for_log(manager: &Child, text: &str) {
    until(&format!("the manager logs {text}"), async || {
        std::fs::read_to_string(manager.log()).unwrap().contains(text)
    })
    .await;
}

#[tokio::test]
async fn clusters_are_handed_over_as_soon_as_fleet_is_installed() {
    let fixture = Fixture::new("fleet", &[]).await;
    let manager = fixture.start_manager();
    wait_for_log(&manager, "waiting for Fleet: fleet.cattle.io/v1alpha1 Cluster").await;
    fleet::install_crds(&fixture.client).await;

    let object = fixture.wait("team", "Cluster", "blue").await;
    let spec = &object["spec"];
    assert_eq!(spec["kubeConfigSecret"], "blue-kubeconfig");
    assert_eq!((&spec["agentNamespace"], &spec["hostNetwork"]), (&json!(AGENT_NAMESPACE), &json!(true)));
    assert_eq!(spec["clientID"].as_str().unwrap().len(), 64);
    assert_eq!(spec["templateValues"]["Cluster"]["spec"]["topology"]["version"], "v1.34.4");
    assert_eq!(spec["templateValues"]["Cluster"].get("status"), None);
    assert_eq!(object["metadata"]["labels"]["tier"], "one");
    assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "blue");
    assert_eq!(object["metadata"].get("finalizers"), None, "nothing is left behind");

    let own = fixture.wait("classes", "ClusterGroup", "base").await;
    let shared = fixture.wait("team", "ClusterGroup", "base.classes").await;
    for group in [&own, &shared] {
        assert_eq!(group["spec"]["selector"]["matchLabels"], class_labels());
        assert_eq!(group["metadata"]["labels"]["tier"], "one");
    }
    assert_eq!(shared["metadata"]["ownerReferences"][0]["kind"], "Cluster");
    let mapping = fixture.wait("classes", "BundleNamespaceMapping", "team").await;
    let selected = &mapping["namespaceSelector"]["matchLabels"];
    assert_eq!(selected, &json!({"kubernetes.io/metadata.name": "team"}));
    let cluster = fixture.clusters().get("blue").await.unwrap();
    assert_eq!(cluster.finalizers(), [] as [String; 0]);

    // What changes on the Cluster changes on the Fleet Cluster; what somebody changes there is reverted.
    let relabeled = json!({"metadata": {"labels": {"tier": null, "zone": "a"}}, "spec": {"extra": 1}});
    fixture.clusters().patch("blue", &PatchParams::default(), &Patch::Merge(relabeled)).await.unwrap();
    let fleet_clusters = fleet::objects(&fixture.client, "team", "Cluster");
    let drift = json!({"spec": {"agentNamespace": "elsewhere"}});
    fleet_clusters.patch("blue", &PatchParams::default(), &Patch::Merge(drift)).await.unwrap();
    until("the Fleet Cluster is in sync", async || {
        let now = fixture.fleet_cluster().await;
        let labels = now.labels();
        !labels.contains_key("tier")
            && labels.get("zone").is_some_and(|zone| zone == "a")
            && now.data["spec"]["agentNamespace"] == AGENT_NAMESPACE
            && now.data["spec"]["templateValues"]["Cluster"]["spec"]["extra"] == 1
            && now.data["spec"]["clientID"] == spec["clientID"]
    })
    .await;

    // The last Cluster of the class removes the mapping. Nothing else needs the manager: the rest has owners.
    fixture.clusters().delete("blue", &DeleteParams::default()).await.unwrap();
    let mappings = fleet::objects(&fixture.client, "classes", "BundleNamespaceMapping");
    until("the mapping is deleted", async || mappings.get_opt("team").await.unwrap().is_none()).await;
}

#[tokio::test]
async fn the_config_selects_clusters_and_reports_what_it_does_not_act_upon() {
    let fixture = Fixture::new("fleet-config", &[]).await;
    fleet::install_crds(&fixture.client).await;
    let config = |selector: Value| {
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "FleetAddonConfig",
            "metadata": {"name": "fleet-addon-config"},
            "spec": {
                "cluster": {
                    "selector": selector, "namespaceSelector": {"matchLabels": {"import": "true"}},
                    "patchResource": true, "naming": {"prefix": "capi-"},
                },
                "install": {"followLatest": true},
            },
        })
    };
    apply::apply(&fixture.client, &config(json!({"matchLabels": {"tier": "two"}}))).await.unwrap();
    let _manager = fixture.start_manager();
    let configs: Api<DynamicObject> = Api::all_with(
        fixture.client.clone(),
        &dynamic_api::resource("addons.cluster.x-k8s.io/v1alpha1", "FleetAddonConfig"),
    );
    let condition = async |type_: &str| {
        let config = configs.get("fleet-addon-config").await.unwrap();
        let conditions = config.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == type_)
    };
    until("the config is ready", async || {
        condition("Ready").await.is_some_and(|one| one["status"] == "True")
    })
    .await;
    let unsupported = condition("Supported").await.unwrap();
    assert_eq!(unsupported["reason"], "NotSupported");
    assert!(unsupported["message"].as_str().unwrap().contains("spec.install"), "{unsupported}");

    apply::apply(&fixture.client, &config(json!({"matchLabels": {"tier": "one"}}))).await.unwrap();
    let fleet_clusters = fleet::objects(&fixture.client, "team", "Cluster");
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "team", "labels": {"import": "true"}},
    });
    apply::apply(&fixture.client, &namespace).await.unwrap();
    // A change of the Cluster makes Chandler read the labels of the namespace again.
    let touched = json!({"metadata": {"annotations": {"touched": "true"}}});
    fixture.clusters().patch("blue", &PatchParams::default(), &Patch::Merge(touched)).await.unwrap();
    let object = fixture.wait("team", "Cluster", "capi-blue").await;
    assert_eq!(object["metadata"].get("ownerReferences"), None, "setOwnerReferences is not set");
    assert_eq!(object["spec"].get("hostNetwork"), None, "hostNetwork is not set");
    assert_eq!(fleet_clusters.get_opt("blue").await.unwrap().map(|one| one.name_any()), None);
}

/// Applies an object of Fleet as CAAPF does.
async fn apply_as_caapf(client: &Client, manager: &str, object: &Value) -> DynamicObject {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    let api = fleet::objects(client, &text("namespace"), object["kind"].as_str().unwrap());
    api.patch(&text("name"), &PatchParams::apply(manager).force(), &Patch::Apply(object)).await.unwrap()
}

#[tokio::test]
async fn objects_of_caapf_are_taken_over_without_another_import() {
    let fixture = Fixture::new("fleet-takeover", &[CAAPF_FINALIZER]).await;
    fleet::install_crds(&fixture.client).await;
    let before = apply_as_caapf(
        &fixture.client,
        "addon-provider-fleet",
        &json!({
            "apiVersion": fleet::API_VERSION, "kind": "Cluster",
            "metadata": {"name": "blue", "namespace": "team", "labels": {"tier": "one", "removed": "meanwhile"}},
            "spec": {
                "kubeConfigSecret": "blue-kubeconfig", "clientID": "chosen-by-caapf", "agentNamespace": AGENT_NAMESPACE,
                "hostNetwork": true, "templateValues": {"Cluster": {"old": true}},
            },
        }),
    )
    .await;
    apply_as_caapf(
        &fixture.client,
        "cluster-blue-addon-provider-fleet",
        &json!({
            "apiVersion": fleet::API_VERSION, "kind": "ClusterGroup",
            "metadata": {
                "name": "base.classes", "namespace": "team", "labels": class_labels(), "finalizers": [CAAPF_FINALIZER],
            },
            "spec": {"selector": {"matchLabels": class_labels()}},
        }),
    )
    .await;
    let _manager = fixture.start_manager();

    until("the Fleet Cluster is taken over", async || {
        fixture.fleet_cluster().await.annotations().contains_key("chandler.dev/fleet-applied")
    })
    .await;
    let after = fixture.fleet_cluster().await;
    assert_eq!(after.uid(), before.uid(), "it is the same object");
    assert_eq!(after.data["spec"]["clientID"], "chosen-by-caapf");
    assert_eq!(after.labels().get("removed"), None, "CAAPF does not own its fields any more");
    assert_eq!(after.data["spec"]["templateValues"]["Cluster"].get("old"), None);
    let managers: Vec<_> =
        after.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(!managers.contains(&"addon-provider-fleet"), "{managers:?}");

    let classes = dynamic_api::namespaced(&fixture.client, "classes", CLUSTER_API, "ClusterClass");
    let groups = fleet::objects(&fixture.client, "team", "ClusterGroup");
    until("the finalizers of CAAPF are removed", async || {
        let objects = [
            fixture.clusters().get("blue").await.unwrap(),
            classes.get("base").await.unwrap(),
            groups.get("base.classes").await.unwrap(),
        ];
        objects.iter().all(|object| object.finalizers().is_empty())
    })
    .await;
}

#[tokio::test]
async fn the_manager_refuses_to_start_while_caapf_runs() {
    let management = ManagementCluster::new("caapf").await;
    fleet::bind_role(&management.client).await;
    let container = json!({"name": "manager", "image": "example.invalid/caapf"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "caapf-controller-manager", "namespace": "default",
            "labels": {"cluster.x-k8s.io/provider": "fleet"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": "caapf"}},
            "template": {"metadata": {"labels": {"app": "caapf"}}, "spec": {"containers": [container]}},
        },
    });
    apply::apply(&management.client, &deployment).await.unwrap();
    let (success, stderr) = management.run_manager_with(&["--fleet"]).await;
    assert!(!success && stderr.contains("default/caapf-controller-manager has replicas"), "{stderr}");
    assert!(stderr.contains("clusterctl delete --addon rancher-fleet"), "{stderr}");
}

/// Applies a Bundle with a ConfigMap `greeting`, whose field `zone` is a template of Fleet.
async fn apply_bundle(world: &World, zone: &str) {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n\
                    data:\n  zone: {{ .Values.zone | quote }}\n";
    world
        .apply(&json!({
            "apiVersion": fleet::API_VERSION, "kind": "Bundle",
            "metadata": {"name": "greeting", "namespace": world.namespace},
            "spec": {
                "defaultNamespace": "default", "helm": {"values": {"zone": zone}},
                "resources": [{"name": "templates/config.yaml", "content": template}],
                "targets": [{"clusterSelector": {"matchLabels": {"fleet": "test"}}}],
            },
        }))
        .await;
}

async fn wait_zone(alpha: &Plane, zone: &str) {
    until(&format!("the bundle is deployed with zone {zone}"), async || {
        config_value(alpha, "greeting", "zone").await.as_deref() == Some(zone)
    })
    .await;
}

/// Deletes the Cluster `alpha`, which deletes the Fleet Cluster: no finalizer of Chandler or CAAPF is in the way.
async fn delete_alpha(world: &World) {
    world.clusters().delete("alpha", &DeleteParams::default()).await.unwrap();
    let fleet_clusters = fleet::objects(&world.client, &world.namespace, "Cluster");
    until("the Fleet Cluster is deleted", async || fleet_clusters.get_opt("alpha").await.unwrap().is_none())
        .await;
}

#[tokio::test]
#[ignore = "builds fleetcontroller and fleetagent"]
async fn fleet_imports_a_cluster_and_deploys_a_bundle_to_it() {
    let world = World::exclusive("fleet").await;
    let alpha = world.create_cluster("alpha").await;
    fleet::install_crds(&world.client).await;
    fleet::bind_role(&world.client).await;
    let controllers = FleetControllers::start(world.sandbox.management()).await;
    let manager = world.start_manager_with(&["--fleet"]);
    let label = async |zone: &str| {
        let labels = json!({"metadata": {"labels": {"zone": zone}}});
        world.clusters().patch("alpha", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    };
    label("a").await;

    fleet::wait_imported(&world.client, &world.namespace, "alpha").await;
    let _agent = controllers.start_agent(&alpha).await;
    apply_bundle(&world, "${ .ClusterValues.Cluster.metadata.labels.zone }").await;
    wait_zone(&alpha, "a").await;
    label("b").await;
    wait_zone(&alpha, "b").await;

    // A restart changes nothing: the agent stays registered.
    let fleet_clusters = fleet::objects(&world.client, &world.namespace, "Cluster");
    let before = fleet_clusters.get("alpha").await.unwrap();
    manager.stop().await;
    let manager = world.start_manager_with(&["--fleet"]);
    manager.wait_idle().await;
    let after = fleet_clusters.get("alpha").await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(after.data["spec"]["clientID"], before.data["spec"]["clientID"]);
    delete_alpha(&world).await;
}

#[tokio::test]
#[ignore = "builds fleetcontroller and fleetagent"]
async fn an_agent_that_caapf_registered_stays_registered() {
    let world = World::exclusive("caapf").await;
    let alpha = world.create_cluster("alpha").await;
    fleet::install_crds(&world.client).await;
    fleet::bind_role(&world.client).await;
    let controllers = FleetControllers::start(world.sandbox.management()).await;
    // What CAAPF leaves behind.
    let tolerations =
        json!([{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let config = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "FleetAddonConfig",
        "metadata": {"name": "fleet-addon-config"},
        "spec": {"cluster": {
            "selector": {}, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "patchResource": true, "setOwnerReferences": true, "hostNetwork": true, "agentTolerations": tolerations,
        }},
    });
    apply::apply(&world.client, &config).await.unwrap();
    let cluster = world.clusters().get("alpha").await.unwrap();
    let finalizers: Vec<_> =
        cluster.finalizers().iter().map(String::as_str).chain([CAAPF_FINALIZER]).collect();
    let held = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    world.clusters().patch("alpha", &PatchParams::default(), &held).await.unwrap();
    apply_as_caapf(
        &world.client,
        "addon-provider-fleet",
        &json!({
            "apiVersion": fleet::API_VERSION, "kind": "Cluster",
            "metadata": {"name": "alpha", "namespace": world.namespace, "labels": {"fleet": "test"}},
            "spec": {
                "kubeConfigSecret": "alpha-kubeconfig", "clientID": "chosen-by-caapf", "agentNamespace": AGENT_NAMESPACE,
                "hostNetwork": true, "agentTolerations": tolerations,
            },
        }),
    )
    .await;
    let before = fleet::wait_imported(&world.client, &world.namespace, "alpha").await;
    let _agent = controllers.start_agent(&alpha).await;
    let secrets: Api<Secret> = Api::namespaced(alpha.client().await.unwrap(), AGENT_NAMESPACE);
    let registered =
        eventually("the agent is registered", || async { secrets.get_opt("fleet-agent").await.unwrap() })
            .await;
    let registrations = async || {
        let all = fleet::objects(&world.client, &world.namespace, "ClusterRegistration");
        let all = all.list(&ListParams::default()).await.unwrap();
        all.iter().map(|one| (one.name_any(), one.data["spec"]["clientID"].clone())).collect::<Vec<_>>()
    };
    let granted = registrations().await;
    assert!(granted.len() == 1 && granted[0].1 == "chosen-by-caapf", "{granted:?}");

    let manager = world.start_manager_with(&["--fleet"]);
    let fleet_clusters = fleet::objects(&world.client, &world.namespace, "Cluster");
    until("the objects are taken over", async || {
        let cluster = world.clusters().get("alpha").await.unwrap();
        let fleet_cluster = fleet_clusters.get("alpha").await.unwrap();
        fleet_cluster.annotations().contains_key("chandler.dev/fleet-applied")
            && !cluster.finalizers().iter().any(|one| one == CAAPF_FINALIZER)
    })
    .await;
    apply_bundle(&world, "${ .ClusterValues.Cluster.metadata.name }").await;
    wait_zone(&alpha, "alpha").await;
    manager.wait_idle().await;
    let after = fleet_clusters.get("alpha").await.unwrap();
    assert_eq!(after.uid(), before.uid(), "it is the same object");
    assert_eq!(after.data["spec"]["clientID"], "chosen-by-caapf");
    assert_eq!(after.data["status"]["namespace"], before.data["status"]["namespace"]);
    let secret = secrets.get("fleet-agent").await.unwrap();
    assert_eq!(secret.uid(), registered.uid(), "the agent was not installed again");
    assert_eq!(registrations().await, granted);

    delete_alpha(&world).await;
    let configs: Api<DynamicObject> = Api::all_with(
        world.client.clone(),
        &dynamic_api::resource("addons.cluster.x-k8s.io/v1alpha1", "FleetAddonConfig"),
    );
    configs.delete("fleet-addon-config", &DeleteParams::default()).await.unwrap();
}
