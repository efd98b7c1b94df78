//! Tests of a hub with real listeners on loopback, and with the agents' side of the protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

mod agent;
mod client;
mod handshakes;
mod identity;
mod join;
mod peers;
mod proxy;
mod shutdown;
mod world;
