//! What tests of extensions stand in: a world with a catalog of its charts.

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

/// What tests of extensions add to a world.
pub struct Extensions {
    pub world: World,
}

impl Extensions {
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

    /// An Extension of the hello chart; each version has the chart's version of the same name.
    pub async fn extension(&self, name: &str, versions: Value, further: Value) {
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
        spec.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        self.world
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
                "metadata": {"name": name, "namespace": self.world.namespace}, "spec": spec,
            }))
            .await;
    }

    pub async fn instance(&self, name: &str, extension: &str, further: Value) {
        let mut spec = json!({
            "extension": {"name": extension}, "clusters": {"selector": {"matchLabels": {"fleet": "test"}}},
            "release": {"namespace": "default"},
        });
        spec.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
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

    pub async fn release(&self, extension: &str, cluster: &str) -> Option<AddonRelease> {
        let all = self.releases().list(&ListParams::default()).await.unwrap();
        all.items.into_iter().find(|release| {
            release.spec.extension.as_deref() == Some(extension) && release.spec.cluster == cluster
        })
    }

    /// Waits until an extension is Ready on a cluster at a version.
    pub async fn ready(&self, extension: &str, cluster: &str, version: &str) -> AddonRelease {
        eventually(&format!("{extension} {version} is ready on {cluster}"), || async {
            let release = self.release(extension, cluster).await?;
            (is_ready(&release) && release.spec.version.as_deref() == Some(version)).then_some(release)
        })
        .await
    }

    pub async fn instance_condition(&self, name: &str, reason: &str) -> String {
        eventually(&format!("{name} says {reason}"), || async {
            let status = self.instances().get_opt(name).await.unwrap()?.status?;
            let said =
                status.placement.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
            (said.reason == reason).then_some(said.message)
        })
        .await
    }

    /// A condition of a Cluster.
    pub async fn cluster_condition(&self, cluster: &str, type_: &str, status: &str) -> String {
        eventually(&format!("{cluster} has {type_} {status}"), || async {
            let cluster = self.clusters().get(cluster).await.unwrap();
            let all = cluster.data.pointer("/status/conditions")?.as_array()?.clone();
            let found = all.into_iter().find(|condition| condition["type"] == type_)?;
            (found["status"] == status).then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// The Warning Events of the namespace.
    pub async fn warnings(&self) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.world.client.clone(), &self.world.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|event| event.type_.as_deref() == Some("Warning")).collect()
    }
}

/// Whether a release is ready as it is asked for now.
pub fn is_ready(release: &AddonRelease) -> bool {
    let current = release.status.as_ref().filter(|s| s.observed_generation == release.metadata.generation);
    current.and_then(|status| condition(status, "Ready")).is_some_and(|ready| ready.status == "True")
}
