//! The watched objects that the hand-over reads.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::{
    addons::{FLEET_ADDON_CONFIG_NAME, FleetAddonConfigSpec},
    capi::ClusterView,
};
use chandler_core::fleet::{ClassKey, FleetSettings, class_of};
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{ObjectRef, Store},
};
use serde::Deserialize as _;

use super::kinds;
use crate::clusters::{Clusters, as_json};

/// The watched objects. Clones share the stores.
#[derive(Clone)]
pub struct FleetCaches {
    pub clusters: Clusters,
    pub classes: Store<DynamicObject>,
    pub configs: Store<DynamicObject>,
    pub fleet_clusters: Store<DynamicObject>,
    pub groups: Store<DynamicObject>,
    pub mappings: Store<DynamicObject>,
}

impl FleetCaches {
    /// Returns what the config asks for, or why it cannot be used.
    pub fn settings(&self) -> Result<FleetSettings, String> {
        let spec = config(&self.configs).map(|config| spec_of(&config)).transpose()?;
        FleetSettings::of(spec.as_ref()).map_err(|error| error.to_string())
    }

    /// Returns the Clusters of a namespace with a class, without those that are being deleted.
    pub fn clusters_of_class(&self, namespace: &str, class: &ClassKey) -> Vec<Arc<DynamicObject>> {
        let own = self.clusters.in_namespace(namespace).into_values();
        own.filter(|cluster| class_of_cluster(cluster).as_ref() == Some(class)).collect()
    }

    /// Returns the labels of a ClusterClass; none if it is unknown.
    pub fn class_labels(&self, class: &ClassKey) -> BTreeMap<String, String> {
        let class = get(&self.classes, kinds::classes(), &class.namespace, &class.name);
        class.map(|class| class.labels().clone()).unwrap_or_default()
    }
}

/// Returns the class of a Cluster that is not being deleted.
pub fn class_of_cluster(cluster: &DynamicObject) -> Option<ClassKey> {
    let view = ClusterView::of(&cluster.data).unwrap_or_default();
    let is_deleting = cluster.metadata.deletion_timestamp.is_some();
    class_of(&as_json(cluster), &view).filter(|_| !is_deleting)
}

pub fn get(
    store: &Store<DynamicObject>,
    resource: ApiResource,
    namespace: &str,
    name: &str,
) -> Option<Arc<DynamicObject>> {
    store.get(&ObjectRef::new_with(name, resource).within(namespace))
}

/// Returns the FleetAddonConfig.
pub fn config(configs: &Store<DynamicObject>) -> Option<Arc<DynamicObject>> {
    configs.get(&ObjectRef::new_with(FLEET_ADDON_CONFIG_NAME, kinds::configs()))
}

/// Parses the spec of the FleetAddonConfig. The error contains no values, because environment variables may be secret.
pub fn spec_of(config: &DynamicObject) -> Result<FleetAddonConfigSpec, String> {
    FleetAddonConfigSpec::deserialize(&config.data["spec"]).map_err(|_| {
        "spec does not match its schema; compare it with `kubectl explain fleetaddonconfig.spec`".to_owned()
    })
}
