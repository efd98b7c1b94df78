//! Promises to users, each kept by the real manager with real Helm on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod adoption;
mod bare;
mod collisions;
mod crash;
mod isolation;
mod kubernetes_upgrade;
mod leadership;
mod newest;
mod nothing_to_do;
mod path;
mod predecessor;
mod scale;
mod strategies;
mod templates;
mod told;
mod watch_filter;
mod world;
