//! Default and enforced extensions of the platform, for the clusters of several tenants, with a manager that watches all
//! namespaces.

use chandler_api::extensions::{AddonRelease, ExtensionInstance};
use chandler_e2e::{
    extension_world::is_ready, manager::Manager, self_hosted::SelfHosted, wait::eventually,
    world::config_value,
};
use chandler_sandbox::{chart, plane::Plane, provider::cluster_resource, testing};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The namespace whose Extensions are for everyone, unless a flag of the manager says otherwise.
const PLATFORM: &str = "chandler-system";

/// The namespace of a tenant with one Cluster, `main`.
struct Tenant<'t> {
    test: &'t SelfHosted,
    namespace: &'static str,
}

impl<'t> Tenant<'t> {
    async fn new(test: &'t SelfHosted, namespace: &'static str, plane: &Plane, tier: &str) -> Self {
        let metadata = |name: &str| json!({"name": name, "namespace": namespace, "labels": {"tier": tier}});
        test.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        test.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata("main-kubeconfig"),
            "stringData": {"value": plane.kubeconfig()},
        }))
        .await;
        test.apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata("main"),
            "spec": {"topology": {"version": "v1.34.4"}},
        }))
        .await;
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(test.management.client.clone(), namespace, &cluster_resource());
        let initialized =
            Patch::Merge(json!({"status": {"initialization": {"controlPlaneInitialized": true}}}));
        clusters.patch_status("main", &PatchParams::default(), &initialized).await.unwrap();
        Self { test, namespace }
    }

    fn instances(&self) -> Api<ExtensionInstance> {
        Api::namespaced(self.test.management.client.clone(), self.namespace)
    }

    async fn instance_of(&self, extension: &str) -> Option<ExtensionInstance> {
        let all = self.instances().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|one| one.spec.extension.as_ref().is_some_and(|named| named.name == extension))
    }

    async fn release_of(&self, extension: &str) -> Option<AddonRelease> {
        let releases: Api<AddonRelease> =
            Api::namespaced(self.test.management.client.clone(), self.namespace);
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        let name = format!("platform/{extension}");
        all.into_iter().find(|release| release.spec.extension.as_ref() == Some(&name))
    }

    async fn wait_ready(&self, extension: &str) {
        eventually(&format!("{extension} is ready in {}", self.namespace), || async {
            self.release_of(extension).await.filter(is_ready)
        })
        .await;
    }

    async fn delete(&self, extension: &str) -> ExtensionInstance {
        let instance = self.instance_of(extension).await.unwrap();
        self.instances().delete(&instance.name_any(), &DeleteParams::default()).await.unwrap();
        instance
    }
}

/// Writes a chart with nothing but a ConfigMap, which needs no controllers.
async fn publish_chart(test: &SelfHosted) {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: settings\nversion: 1.0.0\n"),
        ("values.yaml", "team: none\n"),
        (
            "templates/settings.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {team: {{ .Values.team | quote }}}\n",
        ),
    ];
    let folder = testing::fresh_dir("platform-defaults-chart").await.unwrap().join("settings");
    test.repository.publish(&chart::write(&folder, &files).unwrap()).unwrap();
    test.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": PLATFORM},
        "stringData": {"ca.crt": test.repository.ca_pem()},
    }))
    .await;
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
        "metadata": {"name": "charts", "namespace": PLATFORM},
        "spec": {"url": test.repository.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
    }))
    .await;
}

async fn apply_extension(test: &SelfHosted, name: &str, install: Value) {
    let source = json!({"catalog": {"name": "charts"}, "chart": "settings"});
    let mut spec =
        json!({"versions": [{"version": "1.0.0", "kubernetes": "*", "source": source}], "install": install});
    spec["install"]["namespace"] = json!("default");
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": name, "namespace": PLATFORM}, "spec": spec,
    }))
    .await;
}

#[tokio::test]
async fn extensions_of_the_platform_reach_the_clusters_of_all_tenants() {
    let test = SelfHosted::new("platform-defaults").await;
    let other = testing::bare_plane().await.unwrap();
    publish_chart(&test).await;
    let team = "team: {{ .Cluster.metadata.namespace }}";
    apply_extension(&test, "guard", json!({"default": {}, "enforced": true, "parametersTemplate": team}))
        .await;
    apply_extension(&test, "standard", json!({"default": {}, "parameters": {"team": "all"}})).await;
    let production = json!({"matchLabels": {"tier": "production"}});
    apply_extension(&test, "audit", json!({"default": production})).await;
    let red = Tenant::new(&test, "red", &test.management.plane, "test").await;
    let _manager = Manager::from_process(test.management.start_manager());
    // This tenant comes later.
    let blue = Tenant::new(&test, "blue", &other, "production").await;
    for (tenant, plane) in [(&red, &test.management.plane), (&blue, &other)] {
        for extension in ["guard", "standard"] {
            tenant.wait_ready(extension).await;
        }
        assert_eq!(config_value(plane, "guard", "team").await.as_deref(), Some(tenant.namespace));
        assert_eq!(config_value(plane, "standard", "team").await.as_deref(), Some("all"));
    }
    blue.wait_ready("audit").await;
    assert!(red.instance_of("audit").await.is_none(), "its cluster is not selected");

    // A tenant may remove what is a default, but not what is enforced; others are not affected.
    red.delete("standard").await;
    let guard = red.delete("guard").await;
    let again = eventually("the enforced instance is created again", || async {
        red.instance_of("guard").await.filter(|again| again.uid() != guard.uid())
    })
    .await;
    let changed = Patch::Merge(json!({"spec": {"parameters": {"team": "mine"}}}));
    red.instances().patch(&again.name_any(), &PatchParams::default(), &changed).await.unwrap();
    eventually("the change is reverted", || async {
        red.instance_of("guard").await.filter(|instance| instance.spec.parameters.is_none())
    })
    .await;
    red.wait_ready("guard").await;
    eventually("the default is removed", || async {
        red.release_of("standard").await.is_none().then_some(())
    })
    .await;
    assert!(red.instance_of("standard").await.is_none(), "it is not created again");
    blue.wait_ready("standard").await;
    let events = |namespace: &'static str| {
        let events: Api<Event> = Api::namespaced(test.management.client.clone(), namespace);
        async move {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            all.into_iter().filter(|event| event.reason.as_deref() == Some("Restored")).count()
        }
    };
    assert!(events("red").await > 0, "an Event says why");
    assert_eq!(events("blue").await, 0);

    // What the platform changes reaches all of them, also what a tenant has not opted out of.
    apply_extension(
        &test,
        "guard",
        json!({"default": {}, "enforced": true, "parameters": {"team": "platform"}}),
    )
    .await;
    for plane in [&test.management.plane, &other] {
        eventually("the new parameters are applied", || async {
            (config_value(plane, "guard", "team").await.as_deref() == Some("platform")).then_some(())
        })
        .await;
    }
    assert_eq!(events("blue").await, 0, "a change of the platform restores nothing");
}
