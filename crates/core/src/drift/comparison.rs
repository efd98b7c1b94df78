//! What the package tool has found about an object.

use chandler_api::status::{DriftedObject, DriftedState, ObjectRecord};

/// Maximum number of fields of an object in the status.
const MAX_PATHS: usize = 10;

/// How the comparison of an object with its package has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOutcome {
    InSync,
    /// It differs. If it should have been corrected, that has failed.
    Drifted,
    /// It does not exist. If it should have been created, that has failed.
    Missing,
    /// It differed or did not exist, and was corrected.
    Corrected,
    /// It could not be compared.
    Unknown,
    /// It must not be compared.
    Ignored,
}

/// The comparison of an object with its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectComparison {
    pub object: ObjectRecord,
    pub outcome: ComparisonOutcome,
    /// JSON pointers to the fields that differ, or differed, at most 20. Never their values.
    pub paths: Vec<String>,
    /// Why it could not be compared or corrected, or is not compared, for users. Empty otherwise.
    pub reason: String,
}

impl ObjectComparison {
    /// Returns the entry of the status. `None` if the object is as it should be.
    pub(super) fn found(&self) -> Option<DriftedObject> {
        let state = match self.outcome {
            ComparisonOutcome::Drifted => DriftedState::Changed,
            ComparisonOutcome::Missing => DriftedState::Missing,
            ComparisonOutcome::Unknown => DriftedState::Unknown,
            ComparisonOutcome::InSync | ComparisonOutcome::Corrected | ComparisonOutcome::Ignored => {
                return None;
            }
        };
        Some(DriftedObject {
            object: self.object.clone(),
            state,
            paths: self.paths.iter().take(MAX_PATHS).cloned().collect(),
            reason: self.reason.clone(),
        })
    }
}
