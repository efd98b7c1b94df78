//! Tests of whole tunnels: a hub, an agent and a target, over pipes in memory and real TLS. The clock is virtual.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod drain;
mod harness;
mod peers;
mod pump;
mod tls;
mod wire;
