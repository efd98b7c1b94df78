//! Commands of the documentation, Chandler's kinds on a real API server, packaging, and the Helm driver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests report failures by panicking"
)]

mod api;
mod basics;
mod bench;
mod caaph_addon;
mod chaos;
mod clusterctl_move;
mod conformance;
mod demo;
mod documents;
mod fidelity;
mod guides;
mod hub_account;
mod images;
mod inline_commands;
mod installed_manager;
mod installing;
mod operator;
mod providers;
mod requirements;
mod sandbox;
mod sboms;
mod security_claims;
mod shipped_dependencies;
mod tunnel;
