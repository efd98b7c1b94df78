//! Extensions on a cluster: who wants which, what the cluster's Kubernetes is about to be, and what comes of both.

mod demand;
mod implied;
mod key;
mod kubernetes;
mod resolve;

pub use demand::{Defect, Demand, PublishedExtensions, demand};
pub use implied::{Circumstances, ImplicitRequest, Implied, Origin, implied, implied_name};
pub use key::{ExtensionKey, namespace_of};
pub use kubernetes::{Kubernetes, Upgrade, kubernetes};
pub use resolve::{Chosen, Resolution, ResolutionInput, resolve};
