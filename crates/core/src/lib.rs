//! All decisions of Chandler as pure, synchronous functions: no Kubernetes client, no async runtime, no clock (callers
//! pass the time).

pub mod backoff;
pub mod catalog;
pub mod cluster_conditions;
pub mod cluster_list;
pub mod conditions;
pub mod contract;
pub mod digest;
pub mod extension;
pub mod failure;
pub mod fleet;
pub mod grant;
pub mod health;
pub mod identity;
pub mod inventory;
pub mod jitter;
pub mod leadership;
pub mod namespace_shares;
pub mod naming;
pub mod package_format;
pub mod parameters;
pub mod placement;
pub mod policy;
pub mod poll;
pub mod proceed;
pub mod reachability;
pub mod release;
pub mod resolution;
pub mod rollout;
pub mod schedule;
pub mod source;
pub mod sync;
pub mod target;
pub mod tunnel;
pub mod version;
