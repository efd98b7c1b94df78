//! The test harness of the end-to-end tests: a real management cluster, real workload clusters, and the programs under
//! test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test harness reports failures by panicking"
)]

pub mod agent;
pub mod buckets;
pub mod canary;
pub mod capi_crds;
pub mod chandler_command;
pub mod clock_shift;
mod crds;
mod diagnostics;
pub mod extension_world;
pub mod fleet;
pub mod git_guide;
pub mod git_repository;
pub mod go_module;
mod https;
pub mod hub;
mod kubectl;
pub mod management_cluster;
pub mod manager;
mod objects;
pub mod oci;
pub mod packaging;
pub mod policies;
pub mod programs;
pub mod self_hosted;
pub mod service;
pub mod shell;
pub mod signals;
pub mod sync_world;
pub mod tenant;
pub mod terminal;
pub mod third_party;
pub mod tunnel_installation;
pub mod tunnel_world;
pub mod unresponsive_server;
pub mod wait;
pub mod world;
