//! The kinds Chandler serves, one file each, and thin typed views of the Cluster API kinds it reads.

pub mod addons;
pub mod capi;
pub mod status;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;

/// Field manager of everything Chandler writes to the management cluster.
pub const FIELD_MANAGER: &str = "chandler";

/// The definitions of the kinds Chandler brings, in the order they are written to `deploy/crds.yaml`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![addons::HelmChartProxy::crd(), addons::HelmReleaseProxy::crd()]
}
