//! Shared by the test binaries: the environment of a test, an https server, and an ssh server.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod env;
pub mod server;
pub mod ssh_server;
