//! The commands a person types, as the documentation prints them; the kinds, as the API server serves them; charts and the
//! contract of package tools, as the Helm driver keeps them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod api;
mod basics;
mod bench;
mod conformance;
mod demo;
mod documents;
mod fidelity;
mod guides;
mod inherited;
mod inline_commands;
mod installed;
mod installing;
mod moving;
mod operator;
mod providers;
mod requirements;
mod sandbox;
mod shipped;
