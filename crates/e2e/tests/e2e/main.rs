//! What Chandler promises to users, tested with the real manager, real Helm and real API servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests report failures by panicking"
)]

mod adoption;
mod artifact_sources;
mod atomic;
mod bucket_sources;
mod caaph;
mod caaph_regressions;
mod caaph_takeover;
mod catalogs;
mod cli;
mod cluster_class;
mod cluster_lifecycle;
mod cluster_resource_set;
mod clusterctl_move;
mod collisions;
mod crash;
mod crds;
mod credential_rotation;
mod event_routing;
mod extension_sources;
mod extensions;
mod fencing;
mod field_conflicts;
mod first_minutes;
mod fleet;
mod git_catalogs;
mod git_packages;
mod git_sources;
mod git_where;
mod gitops;
mod gitops_crash;
mod health;
mod helm_options;
mod history;
mod hooks;
mod isolation;
mod kubeconfigs;
mod kubernetes_upgrade;
mod leadership;
mod lifecycle;
mod log_level;
mod many_releases;
mod metrics;
mod namespaced_rbac;
mod no_op;
mod own_chart;
mod placement_changes;
mod policy;
mod real_charts;
mod receiver;
mod recorded;
mod recovery;
mod remediation;
mod rollouts;
mod scale;
mod second_tool;
mod secrets;
mod several_syncs;
mod signatures;
mod sources;
mod ssh_sources;
mod status;
mod strategies;
mod suspend;
mod sync;
mod sync_guard;
mod templates;
mod traces;
mod tunnel;
mod tunnel_bootstrap;
mod tunnel_client_go;
mod tunnel_faults;
mod tunnel_loss;
mod tunnel_move;
mod tunnel_site;
mod unpinned;
mod unresponsive;
mod upgrade_check;
mod upgrade_policy;
mod waiting;
mod watch_filter;
