//! The management side: watches, reconcilers, status, Events, metrics. Decisions are in `chandler-core`.

mod clusters;
mod error;
mod events;
mod index;
mod leader;
mod metrics;
mod operations;
mod overwrite;
mod placement;
mod predecessor;
mod queue;
mod references;
mod release;
mod run;
mod server;
mod status;
mod watch;

pub use error::Error;
pub use leader::Election;
pub use predecessor::remains as predecessor_remains;
pub use run::{Options, run};
