//! Drift: objects of a release that others have changed or deleted since they were applied.
//!
//! A watch shows that an object has changed, which is not drift yet: its controller may have changed a field that the package
//! does not set. So the package tool compares it once. What was compared is remembered, so that an object is compared again
//! only if it has changed again.

mod comparison;
mod repeats;
mod report;
mod snapshot;
mod state;

pub use comparison::{ComparisonOutcome, ObjectComparison};
pub use report::{DriftReport, correction_message, message};
pub use snapshot::{ComparisonScope, DriftRules, Fingerprint, Snapshot};
pub use state::{Changes, DriftState, NextComparison};
