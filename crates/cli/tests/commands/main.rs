//! The commands a person types, as the documentation prints them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod basics;
mod bench;
mod demo;
mod documents;
mod guides;
mod requirements;
mod sandbox;
mod shell;
