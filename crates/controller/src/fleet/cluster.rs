//! Hands a Cluster over to Fleet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::capi::{ClusterView, ContractReference};
use chandler_core::{
    fleet::{
        ClassKey, ClusterSettings, FleetSettings, HandedOver, TemplateObject, class_of,
        existing_fleet_cluster, fleet_cluster, is_handed_over, mapping, shared_class_group,
    },
    identity::ClusterKey,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, api::DynamicObject, runtime::controller::Action};
use serde_json::Value;

use super::{
    FleetContext,
    caches::get,
    kinds,
    write::{self, FleetObject},
};
use crate::{
    ManagementError, ReconcileError,
    clusters::{self, as_json},
    queue,
};

/// Delay before a Cluster is reconciled again that refers to an object which could not be read.
const RETRY: Duration = Duration::from_secs(10);

/// Reconciles a Cluster.
pub(super) async fn reconcile(
    cluster: Arc<DynamicObject>,
    context: Arc<FleetContext>,
) -> Result<Action, ReconcileError> {
    let Some(key) = clusters::key(&cluster) else { return Ok(Action::await_change()) };
    let view = ClusterView::of(&cluster.data).unwrap_or_default();
    // A paused Cluster is not changed: `clusterctl move` may be copying it.
    if !view.spec.paused {
        write::remove_caapf_finalizer(&context.client, &clusters::resource(), "Cluster", &cluster).await?;
    }
    let Ok(FleetSettings { clusters: Some(settings), .. }) = context.caches.settings() else {
        return Ok(queue::resync(&*cluster));
    };
    let object = as_json(&cluster);
    let namespace = namespace_labels(&context, &settings, &key.namespace).await?;
    if !is_handed_over(&settings, &object, &view, &namespace) {
        return Ok(queue::resync(&*cluster));
    }
    let reconciler = Reconciler { context, settings, key, object, view };
    let complete = reconciler.apply_cluster().await?;
    reconciler.share_class().await?;
    Ok(if complete { queue::resync(&*cluster) } else { Action::requeue(RETRY) })
}

/// Returns the labels of a namespace, if a selector needs them. Namespaces are not watched: a change of their labels is
/// noticed at the next resync.
async fn namespace_labels(
    context: &FleetContext,
    settings: &ClusterSettings,
    name: &str,
) -> Result<BTreeMap<String, String>, ManagementError> {
    if settings.namespace_selector.selects_all() {
        return Ok(BTreeMap::new());
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces
        .get_metadata_opt(name)
        .await
        .map_err(|source| ManagementError::Read { what: format!("namespace {name}"), source })?;
    Ok(namespace.map(|namespace| namespace.labels().clone()).unwrap_or_default())
}

struct Reconciler {
    context: Arc<FleetContext>,
    settings: ClusterSettings,
    key: ClusterKey,
    object: Value,
    view: ClusterView,
}

/// An object that the Cluster refers to.
enum Referenced {
    None,
    Known(Value),
    Unknown,
}

impl Referenced {
    fn for_templates(&self) -> TemplateObject<'_> {
        match self {
            Self::None => TemplateObject::None,
            Self::Known(object) => TemplateObject::Known(object),
            Self::Unknown => TemplateObject::Unknown,
        }
    }
}

impl Reconciler {
    /// Applies the Fleet Cluster. Returns `false` if an object that the Cluster refers to could not be read.
    async fn apply_cluster(&self) -> Result<bool, ManagementError> {
        let control_plane = self.referenced(self.view.spec.control_plane_ref.as_ref()).await;
        let infrastructure = self.referenced(self.view.spec.infrastructure_ref.as_ref()).await;
        let own = |cluster: &DynamicObject| {
            cluster.metadata.namespace.as_deref() == Some(self.key.namespace.as_str())
        };
        let all = self.context.caches.fleet_clusters.state_filter(own);
        let all: Vec<_> = all.iter().map(|one| as_json(one)).collect();
        let existing = existing_fleet_cluster(&self.settings, &self.key, &all);
        let handed_over = HandedOver {
            cluster: &self.object,
            view: &self.view,
            control_plane: control_plane.for_templates(),
            infrastructure_cluster: infrastructure.for_templates(),
        };
        let wanted = fleet_cluster(&self.settings, &handed_over, existing);
        let target = FleetObject {
            resource: kinds::fleet_clusters(),
            kind: kinds::CLUSTER,
            policy: self.settings.write,
        };
        target.apply(&self.context.client, wanted, existing).await?;
        let unknown =
            [&control_plane, &infrastructure].into_iter().any(|one| matches!(one, Referenced::Unknown));
        Ok(!unknown)
    }

    /// Applies the group and the mapping for a class of another namespace.
    async fn share_class(&self) -> Result<(), ManagementError> {
        let class = class_of(&self.object, &self.view).filter(|_| self.settings.class_groups);
        let Some(class) = class.filter(|class| class.namespace != self.key.namespace) else { return Ok(()) };
        self.apply_group(&class).await?;
        // A manager for one namespace has no permissions in the namespace of the class.
        if self.context.scope.namespace.is_some() { Ok(()) } else { self.apply_mapping(&class).await }
    }

    async fn apply_group(&self, class: &ClassKey) -> Result<(), ManagementError> {
        let FleetContext { caches, client, .. } = &*self.context;
        let clusters = caches.clusters_of_class(&self.key.namespace, class);
        let clusters: Vec<_> = clusters.iter().map(|cluster| as_json(cluster)).collect();
        let owners: Vec<_> = clusters.iter().collect();
        let labels = caches.class_labels(class);
        let wanted = shared_class_group(&self.key.namespace, class, labels, &owners);
        let target =
            FleetObject { resource: kinds::groups(), kind: kinds::CLASS, policy: self.settings.write };
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let existing = get(&caches.groups, kinds::groups(), &self.key.namespace, name);
        let existing = existing.map(|group| as_json(&group));
        target.apply(client, wanted, existing.as_ref()).await
    }

    async fn apply_mapping(&self, class: &ClassKey) -> Result<(), ManagementError> {
        let FleetContext { caches, client, .. } = &*self.context;
        let wanted = mapping(&self.key.namespace, &class.namespace);
        let target =
            FleetObject { resource: kinds::mappings(), kind: kinds::MAPPING, policy: self.settings.write };
        let existing = get(&caches.mappings, kinds::mappings(), &class.namespace, &self.key.namespace);
        let existing = existing.map(|mapping| as_json(&mapping));
        target.apply(client, wanted, existing.as_ref()).await
    }

    async fn referenced(&self, to: Option<&ContractReference>) -> Referenced {
        let Some(to) = to else { return Referenced::None };
        match self.context.references.get(&self.key.namespace, to).await {
            Ok(object) => Referenced::Known(as_json(&object)),
            Err(error) => {
                tracing::warn!(cluster = %self.key, "template values for Fleet are incomplete: {error}");
                Referenced::Unknown
            }
        }
    }
}
