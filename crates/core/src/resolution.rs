//! Which version of which extension a cluster gets.

mod range;

pub use range::{Range, RangeError, parse_kubernetes_version, parse_version};
