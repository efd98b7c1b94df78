//! The environment of tests of extensions: a [`World`] with an ExtensionCatalog of its chart repository.

use chandler_api::extensions::{AddonRelease, ExtensionInstance};
use chandler_sandbox::provider::cluster_resource;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{
    wait::eventually,
    world::{World, condition, hello},
};

/// A [`World`] with helpers for the kinds of extensions.
pub struct ExtensionWorld {
    pub world: World,
}

impl ExtensionWorld {
    pub async fn new(name: &str) -> Self {
        let world = World::new(name).await;
        for version in ["1.1.0", "2.0.0"] {
            world.repository.publish_version(&hello(), version).unwrap();
        }
        let catalog = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": world.namespace},
            "spec": {"url": world.repository.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
        });
        world.apply(&catalog).await;
        Self { world }
    }

    /// Applies an Extension of the hello chart. Each of its versions uses the chart's version of the same name; `fields`
    /// replaces fields of its spec.
    pub async fn apply_extension(&self, name: &str, versions: Value, fields: Value) {
        let versions: Vec<_> = versions
            .as_array()
            .unwrap()
            .iter()
            .map(|version| {
                let mut version = version.clone();
                version["source"] = json!({"catalog": {"name": "charts"}, "chart": "hello"});
                version
            })
            .collect();
        let mut spec = json!({"versions": versions});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.world
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
                "metadata": {"name": name, "namespace": self.world.namespace}, "spec": spec,
            }))
            .await;
    }

    /// Applies an ExtensionInstance for all clusters of the test; `fields` replaces fields of its spec.
    pub async fn apply_instance(&self, name: &str, extension: &str, fields: Value) {
        let mut spec = json!({
            "extension": {"name": extension}, "clusters": {"selector": {"matchLabels": {"fleet": "test"}}},
            "release": {"namespace": "default"},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.world
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
                "metadata": {"name": name, "namespace": self.world.namespace}, "spec": spec,
            }))
            .await;
    }

    pub fn instances(&self) -> Api<ExtensionInstance> {
        Api::namespaced(self.world.client.clone(), &self.world.namespace)
    }

    pub fn releases(&self) -> Api<AddonRelease> {
        Api::namespaced(self.world.client.clone(), &self.world.namespace)
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.client.clone(), &self.world.namespace, &cluster_resource())
    }

    /// Returns the AddonRelease of an extension on a cluster.
    pub async fn release(&self, extension: &str, cluster: &str) -> Option<AddonRelease> {
        let all = self.releases().list(&ListParams::default()).await.unwrap();
        all.items.into_iter().find(|release| {
            release.spec.extension.as_deref() == Some(extension) && release.spec.cluster == cluster
        })
    }

    /// Waits until an extension is Ready on a cluster at a version.
    pub async fn wait_ready(&self, extension: &str, cluster: &str, version: &str) -> AddonRelease {
        eventually(&format!("{extension} {version} is ready on {cluster}"), || async {
            let release = self.release(extension, cluster).await?;
            (is_ready(&release) && release.spec.version.as_deref() == Some(version)).then_some(release)
        })
        .await
    }

    /// Waits until the Ready condition of an ExtensionInstance has this reason. Returns its message.
    pub async fn wait_instance_reason(&self, name: &str, reason: &str) -> String {
        eventually(&format!("{name} has reason {reason}"), || async {
            let status = self.instances().get_opt(name).await.unwrap()?.status?;
            let ready =
                status.placement.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
            (ready.reason == reason).then_some(ready.message)
        })
        .await
    }

    /// Waits until a condition of a Cluster has this status. Returns its message.
    pub async fn wait_cluster_condition(&self, cluster: &str, type_: &str, status: &str) -> String {
        eventually(&format!("{cluster} has {type_} {status}"), || async {
            let cluster = self.clusters().get(cluster).await.unwrap();
            let all = cluster.data.pointer("/status/conditions")?.as_array()?.clone();
            let found = all.into_iter().find(|condition| condition["type"] == type_)?;
            (found["status"] == status).then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Returns the notes of the Events with this reason.
    pub async fn event_notes(&self, reason: &str) -> Vec<String> {
        self.world.event_notes(reason).await
    }

    /// Returns the Warning Events of the namespace.
    pub async fn warning_events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.world.client.clone(), &self.world.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|event| event.type_.as_deref() == Some("Warning")).collect()
    }
}

/// Returns whether a release is Ready at its current generation.
pub fn is_ready(release: &AddonRelease) -> bool {
    let current = release.status.as_ref().filter(|s| s.observed_generation == release.metadata.generation);
    current.and_then(|status| condition(status, "Ready")).is_some_and(|ready| ready.status == "True")
}
