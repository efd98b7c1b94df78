//! Tests against a real Cluster API. One binary, so that the sandbox is shared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

mod env;
mod idle_connections;
mod lifecycle;
mod proceed_annotation;
mod registration;
mod unreachable;
