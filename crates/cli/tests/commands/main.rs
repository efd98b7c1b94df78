//! The commands a person types, as the documentation prints them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod basics;
mod bench;
mod demo;
mod documents;
mod guides;
mod installing;
#[path = "../packaging/mod.rs"]
mod packaging;
mod requirements;
mod sandbox;
mod shell;
