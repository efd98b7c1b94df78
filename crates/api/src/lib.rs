//! The kinds Chandler serves, one file each, and thin typed views of the Cluster API kinds it reads.

pub mod addons;
pub mod capi;
mod definition;
pub mod extensions;
pub mod failure;
pub mod grants;
pub mod reasons;
pub mod status;
mod words;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Field manager of everything Chandler writes to the management cluster.
pub const FIELD_MANAGER: &str = "chandler";

/// The definitions of the kinds Chandler brings, in the order they are written to `deploy/crds.yaml`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        definition::of::<addons::HelmChartProxy>(&[definition::MOVES_WITH_WHAT_IT_OWNS]),
        definition::of::<addons::HelmReleaseProxy>(&[]),
        definition::of::<grants::ReferenceGrant>(&[definition::MOVES_WITH_WHAT_IT_OWNS]),
        definition::of::<extensions::ExtensionCatalog>(&[definition::MOVES_WITH_WHAT_IT_OWNS]),
        definition::of::<extensions::Extension>(&[definition::MOVES_WITH_WHAT_IT_OWNS]),
        definition::of::<extensions::ExtensionInstance>(&[definition::MOVES_WITH_WHAT_IT_OWNS]),
        definition::of::<extensions::AddonRelease>(&[]),
    ]
}
