//! Shared by the test binaries: the environment of a test, and an https server.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod env;
pub mod server;
