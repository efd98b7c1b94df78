//! The management side: watches, reconcilers, status, Events, metrics. Decisions are in `chandler-core`.

mod catalog;
mod clusters;
mod error;
mod events;
mod extension;
mod caches;
pub mod hooks;
mod index;
mod leader;
mod metrics;
mod operations;
mod overwrite;
mod pair;
mod parameters;
mod placement;
mod predecessor;
mod queue;
mod references;
mod release;
mod run;
mod server;
mod signatures;
mod single_flight;
mod status;
mod sync;
mod watch;

pub use catalog::{Catalogs, catalog_access};
pub use clusters::resource as cluster_resource;
pub use error::Error;
pub use extension::{ConfigMapKey, Listed, Outlook, Platform};
pub use hooks::HookOptions;
pub use leader::Election;
pub use parameters::{ParameterSources, Read};
pub use predecessor::remains as predecessor_remains;
pub use run::{Options, run};
