//! Tests with real repositories, registries, Git servers and proxies, and with hostile servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

mod support;

mod sources {
    mod artifacts;
    mod buckets;
    mod catalogs;
    mod forwarder;
    mod git;
    mod git_signatures;
    mod git_ssh;
    mod hostile;
    mod proxies;
    mod registries;
    mod repositories;
    mod signatures;
    mod socks;
    mod tenants;
}
