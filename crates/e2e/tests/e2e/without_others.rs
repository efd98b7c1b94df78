//! Tests that measure a time that Chandler promises, and need the whole machine for it. Tests run in the order of their names, so these
//! are last, and the others do not have to wait for them.

mod drift;
mod leadership;
mod many_releases;
mod rollout;
