//! What other crates count and trace with, so that the manager can tell.

mod hits;
mod requests;
pub mod trace;

pub use hits::Hits;
pub use requests::{RequestCount, Requests};
