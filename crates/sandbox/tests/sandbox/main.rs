//! Integration tests of the sandbox. They are one binary, so that they share control planes and link time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

mod charts;
mod clusters;
mod packet_links;
mod planes;
mod pool;
mod processes;
mod restart;
mod upgrades;
