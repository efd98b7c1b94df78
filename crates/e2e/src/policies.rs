//! Policies of placements, and what releases report about them.

use chandler_api::extensions::{AddonPolicy, POLICY_ANNOTATION};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    extension_world::ExtensionWorld,
    wait::eventually,
    world::{World, condition},
};

impl World {
    /// Applies an AddonPolicy in the namespace of the test.
    pub async fn apply_policy(&self, name: &str, spec: Value) {
        self.apply_policy_in(&self.namespace, name, spec).await;
    }

    /// Applies an AddonPolicy in any namespace.
    pub async fn apply_policy_in(&self, namespace: &str, name: &str, spec: Value) {
        self.apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        }))
        .await;
    }

    /// Deletes an AddonPolicy in the namespace of the test.
    pub async fn delete_policy(&self, name: &str) {
        let policies: Api<AddonPolicy> = Api::namespaced(self.client.clone(), &self.namespace);
        policies.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Applies a HelmChartProxy that uses a policy from the beginning; `fields` replaces fields of its spec.
    pub async fn apply_placement_with_policy(&self, name: &str, chart: &str, policy: &str, fields: Value) {
        self.apply_annotated_placement(name, chart, json!({POLICY_ANNOTATION: policy}), fields).await;
    }

    /// Sets annotations of a HelmChartProxy. `null` removes one.
    pub async fn annotate_placement(&self, name: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.placements().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the condition `Ready` of a release has this reason. Returns its message.
    pub async fn wait_reason(&self, placement: &str, cluster: &str, reason: &str) -> String {
        let has_reason = |status: &_| condition(status, "Ready").is_some_and(|ready| ready.reason == reason);
        let status = self.wait_status(placement, cluster, reason, has_reason).await;
        condition(&status, "Ready").unwrap().message.clone()
    }

    /// Waits until a condition of a release has this status and reason. Returns its message.
    pub async fn wait_condition(
        &self,
        placement: &str,
        cluster: &str,
        type_: &str,
        expected: (&str, &str),
    ) -> String {
        let what = format!("{type_} {expected:?}");
        let has = |status: &_| condition(status, type_).is_some_and(|c| (&*c.status, &*c.reason) == expected);
        let status = self.wait_status(placement, cluster, &what, has).await;
        condition(&status, type_).unwrap().message.clone()
    }
}

impl ExtensionWorld {
    /// Waits until the condition `Ready` of an extension's release has this reason. Returns its message.
    pub async fn wait_release_reason(&self, extension: &str, cluster: &str, reason: &str) -> String {
        eventually(&format!("{extension} on {cluster} has reason {reason}"), || async {
            let release = self.release(extension, cluster).await?;
            let generation = release.metadata.generation;
            let status = release.status.filter(|status| status.observed_generation == generation)?;
            let ready = condition(&status, "Ready")?;
            (ready.reason == reason).then(|| ready.message.clone())
        })
        .await
    }
}
