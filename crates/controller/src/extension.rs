//! Extensions: which versions are published, which of them each cluster gets, and the releases of instances.

mod cluster;
mod controllers;
mod hooks;
mod registry;
mod releases;
mod resolver;
mod values;

use std::time::Duration;

pub use self::{
    cluster::ClusterContext,
    controllers::{CLUSTER, ExtensionControllers},
    registry::{ExtensionRegistry, offers::Offers},
    releases::InstanceReleases,
    resolver::{
        Resolver, UnknownKubernetes,
        one_shot::{Listed, OneShotResolver},
        platform::{BadConfigMapKey, ConfigMapError, ConfigMapKey, Platform},
    },
    values::{Values, schema_check::SchemaCheck},
};
use crate::routing::Router;

/// The parts of the manager that the reconciler of Extensions uses.
pub struct ExtensionContext {
    pub client: kube::Client,
    pub registry: ExtensionRegistry,
    pub offers: Offers,
    /// How often sources without a watch are read again.
    pub poll_interval: Duration,
    pub router: Router,
}
