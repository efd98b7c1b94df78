//! A fleet as commands see it: placements and releases, whatever their kind.

mod advice;
mod kinds;
mod model;
mod read;
mod state;

pub use advice::advice;
pub use kinds::{KINDS, Kind, named};
pub use model::{ObjectName, Placement, Release};
pub use read::{Error, Fleet, Reader};
pub use state::State;
