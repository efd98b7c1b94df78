//! The reasons of conditions, one enum per kind of object. They are part of the API: scripts and alerts match on them, so
//! `tests` pins every one.

mod catalog;
mod cluster;
mod extension;
mod fleet;
mod placement;
mod release;
mod source;
mod sync;
mod tunnel;

pub use catalog::CatalogReason;
pub use cluster::ClusterReason;
pub use extension::ExtensionReason;
pub use fleet::FleetReason;
pub use placement::{PlacementReason, PlacementVocabulary};
pub use release::{ReleaseReason, ReleaseVocabulary};
pub use source::SourceReason;
pub use sync::SyncReason;
pub use tunnel::TunnelReason;

/// The reason of a condition as it is stored. Only the typed reasons of this module convert to it, so no condition can have
/// a reason that its kind does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(&'static str);

impl Reason {
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests;
