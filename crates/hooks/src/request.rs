//! Requests of Cluster API, with only the fields that are used.

use chandler_core::{extension::AnnouncedUpgrade, identity::ClusterKey, proceed::proceeds};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};

use crate::{Hook, HookCall};

/// Maximum length of a name or of a version, as in Kubernetes and Cluster API.
const MAX_TEXT: usize = 256;

/// A request of Cluster API for a Cluster.
#[derive(Clone, Debug)]
pub struct HookRequest {
    pub cluster: ClusterKey,
    /// Whether the annotation `chandler.dev/proceed` of the Cluster overrides a response that blocks. The annotation of the
    /// request can be trusted here: a forged request only changes its own response.
    pub overridden: bool,
    parameters: Parameters,
}

/// The hook and its parameters.
#[derive(Clone, Debug)]
enum Parameters {
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
        let parameters = match hook {
            Hook::BeforeClusterUpgrade => Parameters::BeforeClusterUpgrade(fields(body)?),
            Hook::BeforeControlPlaneUpgrade => Parameters::BeforeControlPlaneUpgrade(fields(body)?),
            Hook::AfterControlPlaneUpgrade => Parameters::AfterControlPlaneUpgrade(fields(body)?),
            Hook::AfterClusterUpgrade => Parameters::AfterClusterUpgrade(fields(body)?),
            Hook::BeforeClusterDelete => Parameters::BeforeClusterDelete,
        };
        let overridden = proceeds(annotations.proceed.as_deref(), hook.name());
        Ok(Self { cluster: ClusterKey::new(namespace, name), overridden, parameters })
    }

    /// Returns what the handler gets.
    pub fn call(&self) -> HookCall<'_> {
        match &self.parameters {
            Parameters::BeforeClusterUpgrade(VersionChange { from, to }) => {
                HookCall::BeforeUpgrade(AnnouncedUpgrade::Whole { from, to })
            }
            Parameters::BeforeControlPlaneUpgrade(VersionChange { from, to }) => {
                HookCall::BeforeUpgrade(AnnouncedUpgrade::Step { from, to })
            }
            Parameters::AfterControlPlaneUpgrade(ReachedVersion { version }) => {
                HookCall::AfterControlPlaneUpgrade { version }
            }
            Parameters::AfterClusterUpgrade(ReachedVersion { version }) => {
                HookCall::AfterClusterUpgrade { version }
            }
            Parameters::BeforeClusterDelete => HookCall::BeforeClusterDelete,
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
    use serde_json::{Value, json};

    use super::*;

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
    fn each_hook_has_its_own_call() {
        let change = json!({"fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": "v1.35.4"});
        let reached = json!({"kubernetesVersion": "v1.35.4"});
        let (from, to) = ("v1.34.4", "v1.35.4");
        let (whole, step) = (AnnouncedUpgrade::Whole { from, to }, AnnouncedUpgrade::Step { from, to });
        let rows = [
            (Hook::BeforeClusterUpgrade, &change, HookCall::BeforeUpgrade(whole)),
            (Hook::BeforeControlPlaneUpgrade, &change, HookCall::BeforeUpgrade(step)),
            (Hook::AfterControlPlaneUpgrade, &reached, HookCall::AfterControlPlaneUpgrade { version: to }),
            (Hook::AfterClusterUpgrade, &reached, HookCall::AfterClusterUpgrade { version: to }),
            (Hook::BeforeClusterDelete, &json!({}), HookCall::BeforeClusterDelete),
        ];
        for (hook, extra, call) in rows {
            let request = HookRequest::parse(hook, &request(extra)).unwrap();
            assert_eq!((&request.cluster, request.overridden), (&ClusterKey::new("fleet", "blue"), false));
            assert_eq!(request.call(), call, "{hook:?}");
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
