//! Hooks as the real Cluster API calls them: one binary, so that the sandbox is shared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod life;
mod overruled;
mod registration;
mod unreachable;
mod world;
