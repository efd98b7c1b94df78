//! The health of a release: of the objects that it has on a workload cluster.

mod checks;
mod condition;
mod generic;
mod kinds;
mod object;
mod observation;
mod release;
mod revision;
mod workloads;

pub use checks::{Check, HealthChecks};
pub(crate) use kinds::group;
pub use kinds::has_status;
pub use object::{ObjectState, object_state};
pub use observation::Observation;
pub use release::{ReleaseHealth, UNHEALTHY_GRACE_PERIOD, recheck_at, release_health};
pub use revision::{Confirmation, JudgedRevision, Revision};
