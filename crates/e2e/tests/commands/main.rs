//! The commands a person types, as the documentation prints them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod basics;
mod bench;
mod demo;
mod documents;
#[path = "../go_module/mod.rs"]
mod go_module;
mod guides;
mod inherited;
mod installed;
mod installing;
mod moving;
mod operator;
#[path = "../packaging/mod.rs"]
mod packaging;
mod providers;
mod requirements;
mod sandbox;
mod shell;
