//! Promises to users, each kept by the real manager with real Helm on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod adoption;
mod bare;
mod collisions;
mod crash;
mod isolation;
mod leadership;
mod nothing_to_do;
mod path;
mod predecessor;
mod scale;
mod sources;
mod strategies;
mod templates;
mod world;
