//! Requests of Cluster API, with only the fields that are used.

use chandler_core::{identity::ClusterKey, proceed::proceeds};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};

use crate::{Caller, Hook, HookHandler, HookResponse};

/// Maximum length of a name or of a version, as in Kubernetes and Cluster API.
const MAX_TEXT: usize = 256;

/// A request of Cluster API for a Cluster.
#[derive(Clone, Debug)]
pub struct HookRequest {
    pub cluster: ClusterKey,
    /// Whether the annotation `chandler.dev/proceed` of the Cluster overrides a response that blocks. The annotation of the
    /// request can be trusted here: a forged request only changes its own response.
    pub overridden: bool,
    call: HookCall,
}

/// The hook and its parameters.
#[derive(Clone, Debug)]
enum HookCall {
    BeforeClusterUpgrade(VersionChange),
    BeforeControlPlaneUpgrade(VersionChange),
    AfterControlPlaneUpgrade(ReachedVersion),
    AfterClusterUpgrade(ReachedVersion),
    BeforeClusterDelete,
}

#[derive(Clone, Debug, Deserialize)]
struct VersionChange {
    #[serde(rename = "fromKubernetesVersion", deserialize_with = "short")]
    from: String,
    #[serde(rename = "toKubernetesVersion", deserialize_with = "short")]
    to: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ReachedVersion {
    #[serde(rename = "kubernetesVersion", deserialize_with = "short")]
    version: String,
}

#[derive(Deserialize)]
struct ClusterField {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(deserialize_with = "short")]
    namespace: String,
    #[serde(deserialize_with = "short")]
    name: String,
    #[serde(default)]
    annotations: Annotations,
}

/// The annotation that is used. Others are not kept: there may be as many as fit into a request.
#[derive(Default, Deserialize)]
struct Annotations {
    /// [`chandler_core::proceed::PROCEED_ANNOTATION`].
    #[serde(rename = "chandler.dev/proceed")]
    proceed: Option<String>,
}

impl HookRequest {
    /// Parses the body of a request.
    pub fn parse(hook: Hook, body: &[u8]) -> Result<Self, serde_json::Error> {
        let Metadata { namespace, name, annotations } = fields::<ClusterField>(body)?.cluster.metadata;
        let call = match hook {
            Hook::BeforeClusterUpgrade => HookCall::BeforeClusterUpgrade(fields(body)?),
            Hook::BeforeControlPlaneUpgrade => HookCall::BeforeControlPlaneUpgrade(fields(body)?),
            Hook::AfterControlPlaneUpgrade => HookCall::AfterControlPlaneUpgrade(fields(body)?),
            Hook::AfterClusterUpgrade => HookCall::AfterClusterUpgrade(fields(body)?),
            Hook::BeforeClusterDelete => HookCall::BeforeClusterDelete,
        };
        let overridden = proceeds(annotations.proceed.as_deref(), hook.name());
        Ok(Self { cluster: ClusterKey::new(namespace, name), overridden, call })
    }

    /// Calls the method of the handler for this request.
    pub fn dispatch(&self, handler: &dyn HookHandler, caller: &Caller) -> HookResponse {
        let cluster = &self.cluster;
        match &self.call {
            HookCall::BeforeClusterUpgrade(VersionChange { from, to }) => {
                handler.before_cluster_upgrade(cluster, from, to, caller)
            }
            HookCall::BeforeControlPlaneUpgrade(VersionChange { from, to }) => {
                handler.before_control_plane_upgrade(cluster, from, to, caller)
            }
            HookCall::AfterControlPlaneUpgrade(ReachedVersion { version }) => {
                handler.after_control_plane_upgrade(cluster, version)
            }
            HookCall::AfterClusterUpgrade(ReachedVersion { version }) => {
                handler.after_cluster_upgrade(cluster, version)
            }
            HookCall::BeforeClusterDelete => handler.before_cluster_delete(cluster),
        }
    }
}

/// Reads a text that is kept and reported.
fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() > MAX_TEXT {
        return Err(D::Error::custom(format!("a name or version of {} bytes is too long", text.len())));
    }
    Ok(text)
}

fn fields<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;

    /// Records the calls of its methods.
    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<String>>);

    impl RecordingHandler {
        fn record(&self, call: &[&str]) -> HookResponse {
            self.0.lock().unwrap().push(call.join(" "));
            HookResponse::Proceed
        }
    }

    impl HookHandler for RecordingHandler {
        fn before_cluster_upgrade(
            &self,
            cluster: &ClusterKey,
            from: &str,
            to: &str,
            _: &Caller,
        ) -> HookResponse {
            self.record(&["before upgrade", &cluster.to_string(), from, to])
        }

        fn before_control_plane_upgrade(
            &self,
            cluster: &ClusterKey,
            from: &str,
            to: &str,
            _: &Caller,
        ) -> HookResponse {
            self.record(&["before step", &cluster.to_string(), from, to])
        }

        fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
            self.record(&["after step", &cluster.to_string(), version])
        }

        fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
            self.record(&["after upgrade", &cluster.to_string(), version])
        }

        fn before_cluster_delete(&self, cluster: &ClusterKey) -> HookResponse {
            self.record(&["before delete", &cluster.to_string()])
        }
    }

    /// Returns a request as Cluster API sends it, including fields that are not used.
    fn request(extra: &Value) -> Vec<u8> {
        let mut request = json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "settings": {"key": "value"},
            "cluster": {
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                "metadata": {"namespace": "fleet", "name": "blue", "creationTimestamp": null},
                "spec": {"topology": {"class": "any", "version": "v1.35.4"}},
            },
            "controlPlaneUpgrades": [{"version": "v1.35.4"}],
        });
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::to_vec(&request).unwrap()
    }

    #[test]
    fn each_hook_calls_its_own_method() {
        let change = json!({"fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": "v1.35.4"});
        let reached = json!({"kubernetesVersion": "v1.35.4"});
        let rows = [
            (Hook::BeforeClusterUpgrade, &change, "before upgrade fleet/blue v1.34.4 v1.35.4"),
            (Hook::BeforeControlPlaneUpgrade, &change, "before step fleet/blue v1.34.4 v1.35.4"),
            (Hook::AfterControlPlaneUpgrade, &reached, "after step fleet/blue v1.35.4"),
            (Hook::AfterClusterUpgrade, &reached, "after upgrade fleet/blue v1.35.4"),
            (Hook::BeforeClusterDelete, &json!({}), "before delete fleet/blue"),
        ];
        for (hook, extra, call) in rows {
            let handler = RecordingHandler::default();
            let request = HookRequest::parse(hook, &request(extra)).unwrap();
            assert_eq!((&request.cluster, request.overridden), (&ClusterKey::new("fleet", "blue"), false));
            request.dispatch(&handler, &Caller::default());
            assert_eq!(*handler.0.lock().unwrap(), [call], "{hook:?}");
        }
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let long = json!({"cluster": {"metadata": {"namespace": "fleet", "name": "b".repeat(257)}}});
        let long_version = json!({"kubernetesVersion": "1".repeat(257)});
        let no_namespace = json!({"cluster": {"metadata": {"name": "blue"}}}).to_string().into_bytes();
        for (hook, body) in [
            (Hook::BeforeClusterDelete, b"".to_vec()),
            (Hook::BeforeClusterDelete, no_namespace),
            (Hook::BeforeClusterDelete, long.to_string().into_bytes()),
            (Hook::AfterClusterUpgrade, request(&long_version)),
            (Hook::BeforeClusterUpgrade, request(&json!({}))),
            (Hook::AfterClusterUpgrade, request(&json!({}))),
        ] {
            assert!(HookRequest::parse(hook, &body).is_err(), "{hook:?}");
        }
    }

    #[test]
    fn proceed_annotation_overrides_only_the_named_hook() {
        let annotated = |value: &str| {
            let metadata =
                json!({"namespace": "fleet", "name": "blue", "annotations": {"chandler.dev/proceed": value}});
            let body = request(&json!({"cluster": {"metadata": metadata}, "kubernetesVersion": "v1.35.4"}));
            HookRequest::parse(Hook::AfterClusterUpgrade, &body).unwrap().overridden
        };
        assert_eq!(chandler_core::proceed::PROCEED_ANNOTATION, "chandler.dev/proceed");
        assert!(annotated("AfterClusterUpgrade"));
        assert!(!annotated("BeforeClusterDelete"));
    }
}
