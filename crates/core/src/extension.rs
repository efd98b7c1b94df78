//! Extensions of a cluster: which are requested, by instances or implicitly, and which versions they resolve to.

mod demand;
mod implicit;
mod key;
mod kubernetes;
mod resolve;
mod unread;
mod upgrade_request;
mod upgrade_steps;

pub use demand::{Demand, InvalidRequest, PublishedExtensions, demand};
pub use implicit::{
    ImplicitChanges, ImplicitInput, ImplicitRequest, Origin, implicit_changes, implicit_instance_name,
};
pub(crate) use key::is_of_platform;
pub use key::{ExtensionKey, namespace_of};
pub use kubernetes::{Kubernetes, Upgrade, kubernetes};
pub use resolve::{Chosen, Resolution, ResolutionInput, resolve, resolve_and_plan};
pub use upgrade_request::{AnnouncedUpgrade, RequestedVersions, UnplannedUpgrade};
pub(crate) use upgrade_steps::next_step;
pub use upgrade_steps::{MAX_UPGRADE_MINORS, TooManyMinors, UpgradeSteps};
