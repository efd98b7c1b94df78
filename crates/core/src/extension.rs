//! Extensions of a cluster: which are requested, by instances or implicitly, and which versions they resolve to.

mod demand;
mod implicit;
mod key;
mod kubernetes;
mod resolve;
mod unread;

pub use demand::{Demand, InvalidRequest, PublishedExtensions, demand};
pub use implicit::{
    ImplicitChanges, ImplicitInput, ImplicitRequest, Origin, implicit_changes, implicit_instance_name,
};
pub(crate) use key::is_of_platform;
pub use key::{ExtensionKey, namespace_of};
pub(crate) use kubernetes::next_step;
pub use kubernetes::{Kubernetes, Upgrade, kubernetes};
pub use resolve::{Chosen, Resolution, ResolutionInput, resolve, resolve_and_plan};
