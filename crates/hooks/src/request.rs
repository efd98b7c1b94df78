//! A request as Cluster API asks it: of a request, only the fields we read.

use std::collections::BTreeMap;

use chandler_core::{
    identity::ClusterKey,
    proceed::{PROCEED_ANNOTATION, proceeds},
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{Answer, Answers, Hook};

/// What Cluster API asks about a Cluster.
#[derive(Clone, Debug)]
pub struct HookRequest {
    pub cluster: ClusterKey,
    /// A person has said that an answer which holds is not to be heard. The request is as good a source for it as a
    /// cache: whoever makes one up only gets an answer.
    pub overruled: bool,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    BeforeClusterUpgrade(Path),
    BeforeControlPlaneUpgrade(Path),
    AfterControlPlaneUpgrade(Reached),
    AfterClusterUpgrade(Reached),
    BeforeClusterDelete,
}

#[derive(Clone, Debug, Deserialize)]
struct Path {
    #[serde(rename = "fromKubernetesVersion")]
    from: String,
    #[serde(rename = "toKubernetesVersion")]
    to: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Reached {
    #[serde(rename = "kubernetesVersion")]
    version: String,
}

#[derive(Deserialize)]
struct About {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl HookRequest {
    pub fn read(hook: Hook, request: &[u8]) -> Result<Self, serde_json::Error> {
        let Metadata { namespace, name, annotations } = part::<About>(request)?.cluster.metadata;
        let step = match hook {
            Hook::BeforeClusterUpgrade => Step::BeforeClusterUpgrade(part(request)?),
            Hook::BeforeControlPlaneUpgrade => Step::BeforeControlPlaneUpgrade(part(request)?),
            Hook::AfterControlPlaneUpgrade => Step::AfterControlPlaneUpgrade(part(request)?),
            Hook::AfterClusterUpgrade => Step::AfterClusterUpgrade(part(request)?),
            Hook::BeforeClusterDelete => Step::BeforeClusterDelete,
        };
        let word = annotations.get(PROCEED_ANNOTATION).map(String::as_str);
        Ok(Self { cluster: ClusterKey::new(namespace, name), overruled: proceeds(word, hook.name()), step })
    }

    pub fn put(&self, answers: &dyn Answers) -> Answer {
        let cluster = &self.cluster;
        match &self.step {
            Step::BeforeClusterUpgrade(Path { from, to }) => {
                answers.before_cluster_upgrade(cluster, from, to)
            }
            Step::BeforeControlPlaneUpgrade(Path { from, to }) => {
                answers.before_control_plane_upgrade(cluster, from, to)
            }
            Step::AfterControlPlaneUpgrade(Reached { version }) => {
                answers.after_control_plane_upgrade(cluster, version)
            }
            Step::AfterClusterUpgrade(Reached { version }) => answers.after_cluster_upgrade(cluster, version),
            Step::BeforeClusterDelete => answers.before_cluster_delete(cluster),
        }
    }
}

fn part<T: DeserializeOwned>(request: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(request)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;

    /// Notes what it is asked.
    #[derive(Default)]
    struct Noted(Mutex<Vec<String>>);

    impl Noted {
        fn note(&self, words: &[&str]) -> Answer {
            self.0.lock().unwrap().push(words.join(" "));
            Answer::Go
        }
    }

    impl Answers for Noted {
        fn before_cluster_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
            self.note(&["before upgrade", &cluster.to_string(), from, to])
        }

        fn before_control_plane_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
            self.note(&["before step", &cluster.to_string(), from, to])
        }

        fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
            self.note(&["after step", &cluster.to_string(), version])
        }

        fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
            self.note(&["after upgrade", &cluster.to_string(), version])
        }

        fn before_cluster_delete(&self, cluster: &ClusterKey) -> Answer {
            self.note(&["before delete", &cluster.to_string()])
        }
    }

    /// As Cluster API sends it, with fields that are none of our business.
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
    fn each_hook_asks_its_own_question() {
        let path = json!({"fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": "v1.35.4"});
        let reached = json!({"kubernetesVersion": "v1.35.4"});
        let rows = [
            (Hook::BeforeClusterUpgrade, &path, "before upgrade fleet/blue v1.34.4 v1.35.4"),
            (Hook::BeforeControlPlaneUpgrade, &path, "before step fleet/blue v1.34.4 v1.35.4"),
            (Hook::AfterControlPlaneUpgrade, &reached, "after step fleet/blue v1.35.4"),
            (Hook::AfterClusterUpgrade, &reached, "after upgrade fleet/blue v1.35.4"),
            (Hook::BeforeClusterDelete, &json!({}), "before delete fleet/blue"),
        ];
        for (hook, extra, asked) in rows {
            let noted = Noted::default();
            let request = HookRequest::read(hook, &request(extra)).unwrap();
            assert_eq!((&request.cluster, request.overruled), (&ClusterKey::new("fleet", "blue"), false));
            request.put(&noted);
            assert_eq!(*noted.0.lock().unwrap(), [asked], "{hook:?}");
        }
    }

    #[test]
    fn what_is_no_request_is_no_question() {
        let nameless = json!({"cluster": {"metadata": {"name": "blue"}}}).to_string().into_bytes();
        for (hook, body) in [
            (Hook::BeforeClusterDelete, b"".to_vec()),
            (Hook::BeforeClusterDelete, nameless),
            (Hook::BeforeClusterUpgrade, request(&json!({}))),
            (Hook::AfterClusterUpgrade, request(&json!({}))),
        ] {
            assert!(HookRequest::read(hook, &body).is_err(), "{hook:?}");
        }
    }

    #[test]
    fn the_cluster_carries_the_word_that_overrules() {
        let annotated = |value: &str| {
            let metadata =
                json!({"namespace": "fleet", "name": "blue", "annotations": {"chandler.dev/proceed": value}});
            let body = request(&json!({"cluster": {"metadata": metadata}, "kubernetesVersion": "v1.35.4"}));
            HookRequest::read(Hook::AfterClusterUpgrade, &body).unwrap().overruled
        };
        assert!(annotated("AfterClusterUpgrade"));
        assert!(!annotated("BeforeClusterDelete"));
    }
}
