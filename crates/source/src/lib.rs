//! Packages: where they come from, and the store they are kept in by content.

mod access;
mod error;
mod https;
mod oci;
mod packages;
mod single_flight;
mod store;

pub use access::Access;
pub use error::SourceError;
pub use packages::{Packages, Resolved};
pub use store::Store;
