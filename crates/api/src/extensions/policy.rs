mod drift;
mod test_hooks;

use std::fmt;

use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

pub use self::{
    drift::{DriftIgnore, DriftMode, DriftPolicy, DriftTarget},
    test_hooks::{TestFailure, TestPolicy},
};
use super::{KeyReference, OnClusterDelete, ParametersFrom, RolloutPolicy, rules};
use crate::addons::is_default;

/// How the releases of placements are operated. A change of a policy creates no revision.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "AddonPolicy",
    plural = "addonpolicies",
    shortname = "ap",
    category = "chandler",
    doc = "How the releases of placements are operated. An ExtensionInstance refers to it with `policyRef`, a HelmChartProxy with the annotation `chandler.dev/policy`.",
    namespaced,
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "OnFailure", type_ = "string", json_path = ".spec.remediation.onFailure"),
    printcolumn(name = "Retries", type_ = "integer", json_path = ".spec.remediation.retries"),
    printcolumn(name = "Conflicts", type_ = "string", json_path = ".spec.conflicts"),
    printcolumn(name = "Drift", type_ = "string", json_path = ".spec.drift.mode"),
    printcolumn(name = "CRDs", type_ = "string", json_path = ".spec.crds"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct AddonPolicySpec {
    /// Start no operation. Operations that are running end, and deleted releases stay until this is `false` again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
    /// What happens after an operation has failed. If unset, it is retried until it succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<Remediation>,
    /// How the health of the objects of a release is observed. If unset, it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthPolicy>,
    /// What happens to fields that another field manager has set. If unset, `Fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "choice::<FieldConflicts>")]
    pub conflicts: Option<FieldConflicts>,
    /// The placements whose release has to be ready on a cluster before the release of this one is installed or upgraded
    /// there. They are in the namespace of the placement that uses the policy. Those that do not select the cluster do not
    /// count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["kind".into(), "name".into()]))]
    pub depends_on: Vec<PlacementReference>,
    /// What happens to the release on a cluster that is no longer selected. If unset, `Uninstall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "choice::<OnUnselect>")]
    pub on_unselect: Option<OnUnselect>,
    /// What happens to the release when its cluster is deleted. If unset, what the Extension says, or else `Skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "choice::<OnClusterDelete>")]
    pub on_cluster_delete: Option<OnClusterDelete>,
    /// What happens to the CRDs that a package contains apart from its other objects, such as those in the `crds` directory
    /// of a chart. If unset, `Create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "choice::<CrdsPolicy>")]
    pub crds: Option<CrdsPolicy>,
    /// What happens to objects that were changed or deleted by others. If unset, they are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftPolicy>,
    /// How the tests of a package, such as Helm's test hooks, are run. If unset, they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestPolicy>,
    /// How a change of the placement reaches its clusters, one after another. If unset, it reaches all of them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutPolicy>,
    /// Values from Secrets and ConfigMaps in the namespace of the placement, for HelmChartProxies. Later entries override earlier
    /// ones, and `valuesTemplate` overrides all of them. Unlike everything else in a policy, they are part of the release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub values_from: Vec<ValuesFrom>,
}

/// Values from a Secret or ConfigMap. Name and key may be Go templates over the same data as `valuesTemplate`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["secret", "configMap"]))]
#[serde(rename_all = "camelCase")]
pub struct ValuesFrom {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyReference>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyReference>,
    /// The value to set, for example `auth.password`. If unset, the content is YAML with values by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parameter: Option<String>,
}

impl From<ValuesFrom> for ParametersFrom {
    fn from(ValuesFrom { secret, config_map, parameter }: ValuesFrom) -> Self {
        Self { secret, config_map, parameter, ..Self::default() }
    }
}

/// Returns the schema of an enum without the description of the type, so that a field keeps its own.
fn choice<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    schema.remove("description");
    schema
}

/// What happens after an operation has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// How often an installation or upgrade that has failed is tried again. Failures that do not depend on the release, such as
    /// an unreachable cluster, do not count.
    #[serde(default = "default_retries")]
    #[schemars(range(min = 0, max = 100))]
    pub retries: u32,
    /// What happens after the last retry.
    #[serde(default)]
    pub on_failure: OnFailure,
}

impl Default for Remediation {
    fn default() -> Self {
        Self { retries: default_retries(), on_failure: OnFailure::default() }
    }
}

fn default_retries() -> u32 {
    3
}

/// What happens to a release after the last retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// It is left as it is.
    #[default]
    Keep,
    /// It is rolled back to the last revision that was deployed. Without one, it is left as it is.
    Rollback,
    /// It is uninstalled.
    Uninstall,
}

/// How the health of the objects of a release is observed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct HealthPolicy {
    /// Whether the objects are watched. If `false`, a release is ready as soon as it is deployed.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Which objects of some kinds work. They replace the rules of Chandler for these kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["apiVersion".into(), "kind".into()]))]
    pub checks: Vec<HealthCheck>,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self { enabled: default_true(), checks: Vec::new() }
    }
}

/// Which objects of a kind work: expressions in the Common Expression Language (CEL), as in `healthCheckExprs` of Flux. Their
/// variables are `apiVersion`, `kind`, `metadata`, `spec`, `status` and `data` of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// API version of the objects. The check applies to all versions of the group.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Kind of the objects.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// If it is true, the object is being changed, and `failed` and `current` do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub in_progress: Option<String>,
    /// If it is true, the object has failed, and `current` does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub failed: Option<String>,
    /// If it is true, the object works. Otherwise it is in progress.
    #[schemars(length(min = 1, max = 1024))]
    pub current: String,
}

fn default_true() -> bool {
    true
}

/// What happens to fields that another field manager has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FieldConflicts {
    /// The operation fails.
    #[default]
    Fail,
    /// They are taken over.
    Force,
    /// They are left to the other field manager.
    IgnoreFields,
}

/// What happens to the release on a cluster that is no longer selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnUnselect {
    /// It is uninstalled.
    #[default]
    Uninstall,
    /// It is left on the cluster, and no longer managed.
    Orphan,
}

/// What happens to the CRDs that a package contains apart from its other objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CrdsPolicy {
    /// They are not installed.
    Skip,
    /// They are created if they do not exist, and never changed.
    #[default]
    Create,
    /// They are created, and replaced if the package has others. A replacement that could lose data is refused.
    CreateReplace,
}

/// A placement in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct PlacementReference {
    /// The kind of the placement.
    pub kind: PlacementKindName,
    /// Name of the placement.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl fmt::Display for PlacementReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A kind of placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PlacementKindName {
    /// A HelmChartProxy.
    HelmChartProxy,
    /// An ExtensionInstance.
    ExtensionInstance,
}

impl fmt::Display for PlacementKindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HelmChartProxy => "HelmChartProxy",
            Self::ExtensionInstance => "ExtensionInstance",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unset_fields_have_defaults_and_are_omitted() {
        let empty: AddonPolicySpec = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty, AddonPolicySpec::default());
        assert_eq!(serde_json::to_value(&empty).unwrap(), json!({}));
        let text = json!({"remediation": {}, "health": {}, "drift": {}, "test": {}});
        let spec: AddonPolicySpec = serde_json::from_value(text).unwrap();
        assert_eq!(spec.remediation, Some(Remediation { retries: 3, on_failure: OnFailure::Keep }));
        assert_eq!(spec.health, Some(HealthPolicy { enabled: true, checks: Vec::new() }));
        assert_eq!(spec.drift, Some(DriftPolicy { mode: DriftMode::Ignore, ignore: Vec::new() }));
        assert_eq!(spec.test, Some(TestPolicy { run: true, on_failure: TestFailure::Fail, logs: false }));
    }

    #[test]
    fn every_field_reads_back() {
        let text = json!({
            "suspend": true, "remediation": {"retries": 0, "onFailure": "Rollback"}, "health": {"enabled": false, "checks": [
                {"apiVersion": "example.dev/v1", "kind": "Widget", "inProgress": "a", "failed": "b", "current": "c"},
            ]},
            "conflicts": "IgnoreFields", "dependsOn": [{"kind": "HelmChartProxy", "name": "cni"}],
            "onUnselect": "Orphan", "onClusterDelete": "Uninstall", "crds": "CreateReplace",
            "drift": {"mode": "Correct", "ignore": [
                {"target": {"kind": "Deployment", "name": "web", "namespace": "shop"}, "paths": ["/spec/replicas"]},
                {"paths": ["/metadata/labels/team"]},
            ]},
            "test": {"run": true, "onFailure": "Ignore", "logs": true},
        });
        let spec: AddonPolicySpec = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap(), text);
        assert_eq!(spec.depends_on[0].to_string(), "HelmChartProxy cni");
    }

    fn schema() -> serde_json::Value {
        let crd = serde_json::to_value(<AddonPolicy as kube_core::CustomResourceExt>::crd()).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone()
    }

    #[test]
    fn optional_choices_are_described() {
        let rows = [
            ("conflicts", json!(["Fail", "Force", "IgnoreFields"]), "If unset, `Fail`."),
            ("onUnselect", json!(["Uninstall", "Orphan"]), "If unset, `Uninstall`."),
            ("onClusterDelete", json!(["Skip", "Uninstall"]), "If unset, what the Extension says"),
            ("crds", json!(["Skip", "Create", "CreateReplace"]), "If unset, `Create`."),
        ];
        for (field, choices, text) in rows {
            let field = &schema()[field];
            assert_eq!((&field["type"], &field["enum"]), (&json!("string"), &choices), "{field}");
            assert!(field["description"].as_str().unwrap().contains(text), "{field}");
        }
    }

    #[test]
    fn paths_that_are_not_compared_are_json_pointers() {
        let ignore = &schema()["drift"]["properties"]["ignore"];
        let paths = &ignore["items"]["properties"]["paths"];
        assert_eq!(
            (&ignore["maxItems"], &paths["minItems"], &paths["maxItems"]),
            (&json!(32), &json!(1), &json!(32))
        );
        assert_eq!(paths["items"]["pattern"], "^(/[^/]+)+$");
        assert_eq!(schema()["drift"]["properties"]["mode"]["enum"], json!(["Ignore", "Report", "Correct"]));
        assert_eq!(schema()["test"]["properties"]["onFailure"]["enum"], json!(["Fail", "Ignore"]));
    }

    #[test]
    fn a_placement_is_listed_once() {
        let schema = schema();
        let list = &schema["dependsOn"];
        assert_eq!(list["x-kubernetes-list-map-keys"], json!(["kind", "name"]));
        assert_eq!(list["maxItems"], 32);
    }

    #[test]
    fn checks_are_limited() {
        let schema = schema();
        let list = &schema["health"]["properties"]["checks"];
        assert_eq!(list["x-kubernetes-list-map-keys"], json!(["apiVersion", "kind"]));
        assert_eq!(list["maxItems"], 16);
        assert_eq!(list["items"]["required"], json!(["apiVersion", "current", "kind"]));
        for field in ["inProgress", "failed", "current"] {
            assert_eq!(list["items"]["properties"][field]["maxLength"], 1024, "{field}");
        }
    }
}
