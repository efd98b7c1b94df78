//! The management side: watches, reconcilers, status, Events, metrics. Decisions are in `chandler-core`.

mod clusters;
mod error;
mod events;
pub mod hooks;
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
pub use hooks::HookOptions;
pub use leader::Election;
pub use run::{Options, run};
