use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube_core::Rule;
use kube_derive::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::addons::{Timeout, rules::go_duration};

/// How a change of a placement reaches its clusters. First installations, changes of one Cluster's own data, versions that follow a
/// Kubernetes upgrade, corrections of drift and removals are not held back.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicy {
    /// How many releases are updated at the same time: a number, or a percentage of all clusters of the placement, which is
    /// rounded up.
    #[serde(default = "default_max_concurrent")]
    #[schemars(schema_with = "number_or_percentage")]
    pub max_concurrent: IntOrString,
    /// The order of the clusters. A cluster belongs to the first wave whose selector matches. Clusters that no selector matches
    /// are the last wave. If unset, all clusters are one wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["name".into()]))]
    pub waves: Vec<Wave>,
    /// After how many failed releases the rollout stops. `0` means that failures do not stop it. A release has failed if its
    /// retries are exhausted, if one of its objects has failed, if it is not ready when `timeout` has passed, or if it became
    /// unhealthy after it was ready.
    #[serde(default = "default_stop_after_failures")]
    pub stop_after_failures: u32,
    /// How long a release may take to become ready after its update began, as a Go duration.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub timeout: Timeout,
    /// How long all objects of an updated release have to be healthy before it counts as ready, as a Go duration. Without
    /// health, nothing is waited for after Helm's result.
    #[serde(default = "default_min_ready")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub min_ready: Timeout,
}

/// The derived comparison is an equivalence: there are no floating-point numbers.
impl Eq for RolloutPolicy {}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            max_concurrent: default_max_concurrent(),
            waves: Vec::new(),
            stop_after_failures: default_stop_after_failures(),
            timeout: default_timeout(),
            min_ready: default_min_ready(),
        }
    }
}

/// Clusters that are updated before those of the following waves.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct Wave {
    /// Name of the wave. `others` is that of the clusters that no selector matches.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = not_the_last_wave())]
    pub name: String,
    /// Selects Clusters by label.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: LabelSelector,
    /// How long the releases of the wave have to be ready before the next wave begins, as a Go duration. If unset, the next wave
    /// begins as soon as they are ready.
    #[serde(default = "no_soak")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub soak: Timeout,
}

impl Eq for Wave {}

fn default_max_concurrent() -> IntOrString {
    IntOrString::String("25%".to_owned())
}

fn default_stop_after_failures() -> u32 {
    1
}

fn default_timeout() -> Timeout {
    Timeout("15m".to_owned())
}

fn default_min_ready() -> Timeout {
    Timeout("30s".to_owned())
}

fn not_the_last_wave() -> Rule {
    Rule::new("self != 'others'").message("others is the wave of the clusters that no selector matches")
}

fn no_soak() -> Timeout {
    Timeout("0s".to_owned())
}

fn number_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
            "message": "must be a number of at least 1, or a percentage from 1% to 100%",
        }],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::extensions::AddonPolicy;

    #[test]
    fn unset_fields_have_defaults() {
        let empty: RolloutPolicy = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty, RolloutPolicy::default());
        let expected = json!({
            "maxConcurrent": "25%", "stopAfterFailures": 1, "timeout": "15m", "minReady": "30s",
        });
        assert_eq!(serde_json::to_value(&empty).unwrap(), expected);
    }

    #[test]
    fn every_field_reads_back() {
        let text = json!({
            "maxConcurrent": 3, "stopAfterFailures": 0, "timeout": "5m", "minReady": "0s", "waves": [
                {"name": "canary", "selector": {"matchLabels": {"tier": "canary"}}, "soak": "1h"},
                {"name": "staging", "selector": {"matchLabels": {"tier": "staging"}}, "soak": "0s"},
            ],
        });
        let policy: RolloutPolicy = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&policy).unwrap(), text);
        let wave: Wave = serde_json::from_value(json!({"name": "all", "selector": {}})).unwrap();
        assert_eq!(wave.soak, no_soak());
    }

    #[test]
    fn the_schema_has_defaults_and_rules() {
        let crd = serde_json::to_value(<AddonPolicy as kube_core::CustomResourceExt>::crd()).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rollout = &spec["properties"]["rollout"]["properties"];
        let number = &rollout["maxConcurrent"];
        assert_eq!(number["x-kubernetes-int-or-string"], true);
        assert_eq!(number["default"], "25%");
        assert!(
            number["x-kubernetes-validations"][0]["rule"].as_str().unwrap().contains("matches"),
            "{number}"
        );
        assert!(number["description"].as_str().unwrap().contains("percentage"), "{number}");
        assert_eq!(rollout["waves"]["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(rollout["waves"]["maxItems"], 16);
        let name = &rollout["waves"]["items"]["properties"]["name"];
        assert_eq!(name["x-kubernetes-validations"][0]["rule"], "self != 'others'");
        assert_eq!(rollout["timeout"]["default"], "15m");
    }
}
