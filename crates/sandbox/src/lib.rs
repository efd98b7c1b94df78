//! Real Kubernetes on one machine without containers, and a Cluster API provider over local processes.
//!
//! [`Sandbox`] is the whole of it; [`plane::Plane`] is a single control plane; [`testing`] is what tests call.

pub mod apply;
pub mod capi;
pub mod certificates;
pub mod chart;
pub mod clusters;
pub mod cosign;
mod digest;
pub mod kubeconfig;
pub mod plane;
pub mod process;
pub mod provider;
pub mod registry;
pub mod repository;
pub mod requests;
pub mod sandbox;
pub mod service_account;
pub mod state;
pub mod testing;

pub use chandler_assets::{self as assets, progress};

pub use self::sandbox::Sandbox;
