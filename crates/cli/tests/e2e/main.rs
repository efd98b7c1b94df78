//! Promises to users, each kept by the real manager with real Helm on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

mod adoption;
mod aftermath;
mod atomic;
mod bare;
mod canary;
mod catalogs;
mod cluster_class;
mod cluster_life;
mod collisions;
mod crash;
mod eight_by_ten;
mod event_routing;
mod extension_sources;
mod extension_world;
mod extensions;
#[path = "../go_module/mod.rs"]
mod go_module;
mod hooks;
mod isolation;
mod kubernetes_upgrade;
mod leadership;
mod log_level;
mod looking;
mod manager;
mod metrics;
mod moving;
mod narrowed;
mod newest;
mod nothing_to_do;
mod own_chart;
#[path = "../packaging/mod.rs"]
mod packaging;
mod path;
mod predecessor;
mod real_charts;
mod recovery;
mod scale;
mod secrets;
mod signatures;
mod sources;
mod strategies;
mod takeover;
mod templates;
#[path = "../third_party/mod.rs"]
mod third_party;
mod told;
mod traces;
mod upgrade_check;
mod watch_filter;
mod weaknesses;
mod world;
