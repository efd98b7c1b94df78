//! Tests that need the whole machine: they have many clusters, or measure a time that Chandler promises. Tests run in the order of their
//! names, so these are last, and the others do not have to wait for them.

mod drift;
mod event_routing;
mod leadership;
mod many_releases;
mod metrics;
mod queued_operations;
mod real_charts;
mod rollout;
mod scale;
