//! Runs real Kubernetes control planes as local processes, without containers, and a Cluster API provider that creates
//! them.
//!
//! [`Sandbox`] is a management cluster with Cluster API and its workload clusters, [`plane::Plane`] a single control
//! plane. Tests use [`testing`].

pub mod apply;
pub mod bucket_server;
pub mod capi;
pub mod certificates;
pub mod chart;
pub mod clusterctl_move;
pub mod clusters;
pub mod connect_proxy;
pub mod cosign;
pub mod crds;
mod digest;
pub mod dynamic_api;
pub mod fault_proxy;
pub mod git_server;
pub mod hostile;
pub mod https_server;
pub mod kubeconfig;
pub mod netns;
pub mod packet_link;
pub mod plane;
pub mod process;
pub mod provider;
pub mod registry;
pub mod repository;
pub mod requests;
pub mod sandbox;
pub mod service_account;
pub mod state;
pub mod test_record;
pub mod testing;
pub mod webhook;

pub use chandler_assets::{self as assets, progress};

pub use self::sandbox::Sandbox;
