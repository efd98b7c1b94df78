//! Extensions: the registry of published versions, the resolution per cluster, and the releases of instances.

mod cluster;
mod controllers;
mod folders;
mod hooks;
mod implicit_instances;
mod registry;
mod releases;
mod resolver;
mod values;

use std::time::Duration;

pub use self::{
    cluster::ClusterContext,
    controllers::{CLUSTER, ExtensionControllers, resolver},
    folders::FolderPackages,
    registry::{ExtensionRegistry, offers::Offers},
    releases::InstanceReleases,
    resolver::{
        Resolver, UnknownKubernetes, kubernetes_of,
        one_shot::{Listed, OneShotResolver},
        platform::{BadConfigMapKey, ConfigMapError, ConfigMapKey, Platform},
    },
    values::{Values, schema_check::SchemaCheck},
};
use crate::routing::Router;

/// The context of the reconciler of Extensions.
pub struct ExtensionContext {
    pub client: kube::Client,
    pub registry: ExtensionRegistry,
    pub offers: Offers,
    /// How often sources that cannot be watched are polled.
    pub poll_interval: Duration,
    pub router: Router,
}
