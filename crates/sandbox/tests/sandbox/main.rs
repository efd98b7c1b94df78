//! The sandbox itself, for real: one binary, so that planes and link time are shared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod charts;
mod clusters;
mod planes;
mod tether;
mod upgrades;
mod whole;
