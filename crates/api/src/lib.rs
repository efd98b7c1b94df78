//! The custom resources of Chandler, one file per kind, and typed views of the Cluster API kinds that it reads.

pub mod addons;
pub mod capi;
mod definition;
pub mod extensions;
pub mod failure;
pub mod grants;
pub mod reasons;
pub mod status;
mod string_enum;
pub mod tunnel;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The field manager of everything that Chandler writes to the management cluster.
pub const FIELD_MANAGER: &str = "chandler";
/// Annotation in which `kubectl apply` stores the whole object.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the CRDs of Chandler, in the order in which `deploy/crds.yaml` lists them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        definition::of::<addons::HelmChartProxy>(&[definition::MOVE_HIERARCHY_LABEL]),
        definition::of::<addons::HelmReleaseProxy>(&[]),
        definition::of::<grants::ReferenceGrant>(&[definition::MOVE_HIERARCHY_LABEL]),
        definition::of::<extensions::ExtensionCatalog>(&[definition::MOVE_HIERARCHY_LABEL]),
        definition::of::<extensions::Extension>(&[definition::MOVE_HIERARCHY_LABEL]),
        definition::of::<extensions::ExtensionInstance>(&[definition::MOVE_HIERARCHY_LABEL]),
        definition::of::<extensions::AddonRelease>(&[]),
        definition::of::<extensions::AddonPolicy>(&[definition::MOVE_HIERARCHY_LABEL]),
        // Without the label: it is about the namespaces of one management cluster.
        definition::of::<extensions::AddonTenancy>(&[]),
        definition::of::<extensions::Source>(&[definition::MOVE_HIERARCHY_LABEL]),
        // Without the label: a Sync stays where it is, because its ServiceAccount does.
        definition::of::<extensions::SyncObject>(&[]),
        // Without the label: the Cluster that owns it takes it along.
        definition::with_rule(
            definition::of::<tunnel::ClusterTunnel>(&[]),
            "self.metadata.name == self.spec.clusterName",
            "a ClusterTunnel has the name of its Cluster: metadata.name and spec.clusterName must be equal",
        ),
        definition::singleton(
            definition::of::<addons::FleetAddonConfig>(&[]),
            addons::FLEET_ADDON_CONFIG_NAME,
        ),
    ]
}
