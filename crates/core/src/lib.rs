//! Every decision Chandler takes, pure and synchronous: no client, no runtime, no clock (time is passed in).

pub mod backoff;
pub mod conditions;
pub mod contract;
pub mod digest;
pub mod failure;
pub mod grant;
pub mod identity;
pub mod inventory;
pub mod leadership;
pub mod naming;
pub mod placement;
pub mod poll;
pub mod proceed;
pub mod release;
pub mod resolution;
pub mod schedule;
pub mod target;
pub mod version;
