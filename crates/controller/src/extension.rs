//! Extensions: what is published, which versions clusters get, and what instances of them come to.

mod answers;
mod catalog_offers;
mod cluster;
mod compose;
mod controllers;
mod offers;
mod outlook;
mod packaged;
mod platform;
mod publish;
mod resolutions;
mod shelf;
mod values;

pub use cluster::ClusterContext;
pub use compose::Instances;
pub use controllers::{CLUSTER, ExtensionControllers};
pub use offers::Offers;
pub use outlook::{Listed, Outlook};
pub use packaged::Packaged;
pub use platform::{BadConfigMapKey, ConfigMapError, ConfigMapKey, Platform};
pub use resolutions::{Last, Resolutions, UnknownKubernetes};
pub use shelf::Shelf;
pub use values::Values;

use std::time::Duration;

use crate::routing::Router;

/// What a pass over an Extension works with.
pub struct ExtensionContext {
    pub client: kube::Client,
    pub shelf: Shelf,
    pub offers: Offers,
    /// How often sources that have to be asked are asked again.
    pub poll_interval: Duration,
    pub router: Router,
}
