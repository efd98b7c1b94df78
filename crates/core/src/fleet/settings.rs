//! What a FleetAddonConfig asks for.

use chandler_api::addons::{
    DEFAULT_AGENT_NAMESPACE, FleetAddonConfigSpec, FleetClassConfig, FleetClusterConfig,
};
use k8s_openapi::{
    api::core::v1::{EnvVar, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube_core::Selector;

use crate::placement::SelectionError;

/// What a FleetAddonConfig asks for. A section that is `None` is off: its objects are neither created nor changed.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    pub clusters: Option<ClusterSettings>,
    pub classes: Option<ClassSettings>,
}

/// How Clusters are handed over.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub selector: Selector,
    pub namespace_selector: Selector,
    pub write: WritePolicy,
    pub owner_references: bool,
    /// Whether groups and mappings are created for classes of other namespaces.
    pub class_groups: bool,
    pub host_network: Option<bool>,
    pub agent_namespace: String,
    pub agent_tolerations: Vec<Toleration>,
    pub agent_env_vars: Vec<EnvVar>,
    pub prefix: String,
    pub suffix: String,
}

/// How ClusterClasses become groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    pub write: WritePolicy,
    pub owner_references: bool,
}

/// Whether objects that exist are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// Objects are created if they are missing.
    CreateOnly,
    /// Objects are kept in sync.
    Maintain,
}

impl WritePolicy {
    fn of(patch_resource: Option<bool>) -> Self {
        if is_on(patch_resource) { Self::Maintain } else { Self::CreateOnly }
    }
}

impl FleetSettings {
    /// Parses a config. `None` means that the object does not exist.
    pub fn of(spec: Option<&FleetAddonConfigSpec>) -> Result<Self, SelectionError> {
        let defaults = FleetAddonConfigSpec::without_object();
        let spec = spec.unwrap_or(&defaults);
        Ok(Self {
            clusters: spec.cluster.as_ref().map(ClusterSettings::of).transpose()?,
            classes: spec.cluster_class.as_ref().map(ClassSettings::of),
        })
    }
}

impl ClassSettings {
    fn of(config: &FleetClassConfig) -> Self {
        Self {
            write: WritePolicy::of(config.patch_resource),
            owner_references: is_on(config.set_owner_references),
        }
    }
}

impl ClusterSettings {
    fn of(config: &FleetClusterConfig) -> Result<Self, SelectionError> {
        let naming = config.naming.clone().unwrap_or_default();
        Ok(Self {
            selector: selector(&config.selector, "spec.cluster.selector")?,
            namespace_selector: selector(&config.namespace_selector, "spec.cluster.namespaceSelector")?,
            write: WritePolicy::of(config.patch_resource),
            owner_references: is_on(config.set_owner_references),
            class_groups: is_on(config.apply_class_group),
            host_network: config.host_network,
            agent_namespace: config
                .agent_namespace
                .clone()
                .unwrap_or_else(|| DEFAULT_AGENT_NAMESPACE.to_owned()),
            agent_tolerations: config.agent_tolerations.clone().unwrap_or_else(default_tolerations),
            agent_env_vars: config.agent_env_vars.clone().unwrap_or_default(),
            prefix: naming.prefix.unwrap_or_default(),
            suffix: naming.suffix.unwrap_or_default(),
        })
    }

    /// Returns the name of a new Fleet Cluster.
    pub fn name(&self, cluster: &str) -> String {
        format!("{}{cluster}{}", self.prefix, self.suffix)
    }
}

/// In a section that is set, a switch that is not set is off.
fn is_on(switch: Option<bool>) -> bool {
    switch == Some(true)
}

fn selector(selector: &LabelSelector, field: &'static str) -> Result<Selector, SelectionError> {
    Selector::try_from(selector.clone()).map_err(|source| SelectionError::Selector { field, source })
}

/// Returns the tolerations with which the agent starts before the cluster has a CNI and a cloud provider.
fn default_tolerations() -> Vec<Toleration> {
    let toleration = |key: &str, operator: &str, value: Option<&str>| Toleration {
        effect: Some("NoSchedule".to_owned()),
        key: Some(key.to_owned()),
        operator: Some(operator.to_owned()),
        value: value.map(str::to_owned),
        ..Toleration::default()
    };
    vec![
        toleration("node.kubernetes.io/not-ready", "Exists", None),
        toleration("node.cluster.x-k8s.io/uninitialized", "Exists", None),
        toleration("node.cloudprovider.kubernetes.io/uninitialized", "Equal", Some("true")),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(spec: Value) -> Result<FleetSettings, SelectionError> {
        FleetSettings::of(Some(&serde_json::from_value(spec).unwrap()))
    }

    #[test]
    fn without_the_object_everything_is_on() {
        let FleetSettings { clusters, classes } = FleetSettings::of(None).unwrap();
        let clusters = clusters.unwrap();
        assert!(clusters.selector.selects_all() && clusters.namespace_selector.selects_all());
        assert_eq!((clusters.write, clusters.owner_references), (WritePolicy::Maintain, true));
        assert_eq!((clusters.class_groups, clusters.host_network), (true, Some(true)));
        assert_eq!(clusters.agent_namespace, "fleet-addon-agent");
        let keys: Vec<_> = clusters.agent_tolerations.iter().filter_map(|one| one.key.as_deref()).collect();
        assert_eq!(
            keys,
            [
                "node.kubernetes.io/not-ready",
                "node.cluster.x-k8s.io/uninitialized",
                "node.cloudprovider.kubernetes.io/uninitialized"
            ]
        );
        assert_eq!(classes, Some(ClassSettings { write: WritePolicy::Maintain, owner_references: true }));
    }

    #[test]
    fn a_section_or_switch_that_is_not_set_is_off() {
        let empty = settings(json!({})).unwrap();
        assert!(empty.clusters.is_none() && empty.classes.is_none());
        let minimal =
            settings(json!({"cluster": {"selector": {}, "namespaceSelector": {}}, "clusterClass": {}}))
                .unwrap();
        let clusters = minimal.clusters.unwrap();
        assert_eq!((clusters.write, clusters.owner_references), (WritePolicy::CreateOnly, false));
        assert_eq!((clusters.class_groups, clusters.host_network), (false, None));
        assert_eq!(
            (clusters.agent_namespace.as_str(), clusters.agent_tolerations.len()),
            ("fleet-addon-agent", 3)
        );
        assert_eq!(
            minimal.classes,
            Some(ClassSettings { write: WritePolicy::CreateOnly, owner_references: false })
        );
    }

    #[test]
    fn names_have_a_prefix_and_a_suffix() {
        let rows = [
            (json!({"prefix": "capi-", "suffix": "-fleet"}), "capi-blue-fleet"),
            (json!({"prefix": "capi-"}), "capi-blue"),
            (json!({"suffix": "-fleet"}), "blue-fleet"),
            (json!({}), "blue"),
        ];
        for (naming, expected) in rows {
            let spec = json!({"cluster": {"selector": {}, "namespaceSelector": {}, "naming": naming}});
            assert_eq!(settings(spec).unwrap().clusters.unwrap().name("blue"), expected);
        }
    }

    #[test]
    fn an_invalid_selector_is_refused() {
        let invalid = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]});
        let error = settings(json!({"cluster": {"selector": invalid, "namespaceSelector": {}}})).unwrap_err();
        assert!(error.to_string().starts_with("spec.cluster.selector is invalid"), "{error}");
    }
}
