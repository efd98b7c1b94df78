//! Sources as they are met: real repositories, registries and proxies, and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod catalogs;
mod forwarder;
mod hostile;
mod proxies;
mod registries;
mod repositories;
mod server;
mod signatures;
mod socks;
mod world;
