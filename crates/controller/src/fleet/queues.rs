//! The queues of the hand-over, and which events enqueue what.

use std::sync::{Arc, OnceLock};

use chandler_core::{
    fleet::{ClassKey, class_of_group, cluster_of},
    identity::ClusterKey,
};
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::ObjectRef,
};

use super::{
    caches::{FleetCaches, class_of_cluster},
    kinds,
};
use crate::{
    clusters::{self, as_json},
    metrics::Metrics,
    queue::{Queue, Trigger},
};

/// The queues of the hand-over. Before they are activated, events are ignored. Clones share the queues.
#[derive(Clone, Default)]
pub struct FleetQueues(Arc<OnceLock<Active>>);

struct Active {
    caches: FleetCaches,
    clusters: Trigger<DynamicObject>,
    classes: Trigger<DynamicObject>,
    mappings: Trigger<DynamicObject>,
    configs: Trigger<DynamicObject>,
}

/// The enqueued objects.
pub struct Enqueued {
    pub clusters: Queue<DynamicObject>,
    pub classes: Queue<DynamicObject>,
    pub mappings: Queue<DynamicObject>,
    pub configs: Queue<DynamicObject>,
}

impl FleetQueues {
    /// Creates the queues. From now on, events are routed to them.
    pub fn activate(&self, caches: FleetCaches, metrics: &Metrics) -> Enqueued {
        let (clusters, cluster_queue) = Trigger::new(kinds::CLUSTER, metrics);
        let (classes, class_queue) = Trigger::new(kinds::CLASS, metrics);
        let (mappings, mapping_queue) = Trigger::new(kinds::MAPPING, metrics);
        let (configs, config_queue) = Trigger::new(kinds::CONFIG, metrics);
        // Fails only if it is called twice.
        let _ = self.0.set(Active { caches, clusters, classes, mappings, configs });
        Enqueued {
            clusters: cluster_queue,
            classes: class_queue,
            mappings: mapping_queue,
            configs: config_queue,
        }
    }

    /// Handles a change of a Cluster or of an object that it refers to. A mapping may no longer be needed.
    pub fn on_cluster(&self, cluster: &ClusterKey) {
        let Some(active) = self.0.get() else { return };
        active.clusters.enqueue(clusters::reference(cluster));
        active.mappings_of(&cluster.namespace);
    }

    /// Handles a change of a ClusterClass. Groups in other namespaces have its labels.
    pub fn on_class(&self, class: &DynamicObject) {
        let Some(active) = self.0.get() else { return };
        active.classes.enqueue(reference(class, kinds::classes()));
        let key = ClassKey { namespace: class.namespace().unwrap_or_default(), name: class.name_any() };
        let all = active.caches.clusters.store().state();
        active.clusters(all.iter().filter(|cluster| class_of_cluster(cluster).as_ref() == Some(&key)));
    }

    /// Handles a change of the config: everything may change.
    pub fn on_config(&self) {
        let Some(active) = self.0.get() else { return };
        let FleetCaches { clusters, classes, configs, mappings, .. } = &active.caches;
        active.clusters(clusters.store().state().iter());
        for class in classes.state() {
            active.classes.enqueue(reference(&class, kinds::classes()));
        }
        for mapping in mappings.state() {
            active.mappings.enqueue(reference(&mapping, kinds::mappings()));
        }
        for config in configs.state() {
            active.configs.enqueue(reference(&config, kinds::configs()));
        }
    }

    pub fn on_fleet_cluster(&self, fleet_cluster: &DynamicObject) {
        let Some(active) = self.0.get() else { return };
        if let Some(cluster) = cluster_of(&as_json(fleet_cluster)) {
            active.clusters.enqueue(clusters::reference(&cluster));
        }
    }

    pub fn on_group(&self, group: &DynamicObject) {
        let Some(active) = self.0.get() else { return };
        let Some(class) = class_of_group(&as_json(group)) else { return };
        let namespace = group.namespace().unwrap_or_default();
        if namespace == class.namespace {
            let class = ObjectRef::new_with(&class.name, kinds::classes()).within(&class.namespace);
            active.classes.enqueue(class);
        } else {
            active.clusters(active.caches.clusters_of_class(&namespace, &class).iter());
        }
    }

    /// Handles a change of a mapping, which is named after the namespace of the Clusters that need it.
    pub fn on_mapping(&self, mapping: &DynamicObject) {
        let Some(active) = self.0.get() else { return };
        active.mappings.enqueue(reference(mapping, kinds::mappings()));
        for cluster in active.caches.clusters.in_namespace(&mapping.name_any()).keys() {
            active.clusters.enqueue(clusters::reference(cluster));
        }
    }
}

impl Active {
    fn clusters<'a>(&self, all: impl Iterator<Item = &'a Arc<DynamicObject>>) {
        for key in all.filter_map(|cluster| clusters::key(cluster)) {
            self.clusters.enqueue(clusters::reference(&key));
        }
    }

    /// Enqueues the mappings for the Clusters of a namespace.
    fn mappings_of(&self, namespace: &str) {
        let own = self.caches.mappings.state_filter(|mapping| mapping.name_any() == namespace);
        for mapping in own {
            self.mappings.enqueue(reference(&mapping, kinds::mappings()));
        }
    }
}

fn reference(object: &DynamicObject, resource: ApiResource) -> ObjectRef<DynamicObject> {
    ObjectRef::from_obj_with(object, resource)
}
