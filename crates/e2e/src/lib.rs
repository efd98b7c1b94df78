//! The harness of the end-to-end tests: a real management cluster, real workload clusters, and the programs under test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a harness ends the test that uses it by failing"
)]

pub mod bare;
pub mod canary;
mod diagnostics;
pub mod extension_world;
pub mod go_module;
mod kubectl;
pub mod manager;
pub mod oci;
pub mod packaging;
pub mod programs;
pub mod shell;
pub mod third_party;
pub mod wait;
pub mod world;
