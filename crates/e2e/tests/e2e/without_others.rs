//! Tests that need the whole machine: they measure a time that Chandler promises, or have so much to do that other managers lose
//! their Leases. Tests run in the order of their names, so these are last, and the others do not have to wait for them.

mod drift;
mod leadership;
mod many_releases;
mod queued_operations;
mod rollout;
mod scale;
