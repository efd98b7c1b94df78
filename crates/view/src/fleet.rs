//! The fleet as commands show it: placements and releases of all kinds.

mod kinds;
mod model;
mod next_step;
mod reader;
mod state;

pub use kinds::{KINDS, Kind, find_kinds};
pub use model::{ObjectName, PackageFolder, Placement, Release};
pub use next_step::next_step;
pub use reader::{Error, Fleet, FleetReader};
pub use state::{Health, State};
