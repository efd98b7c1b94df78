//! What is reported about drift.

use chandler_api::status::{DriftedObject, DriftedState};

use super::ObjectComparison;

/// Maximum number of fields of an object in a message.
const NAMED_FIELDS: usize = 3;

/// What is known about the drift of a release. The texts are for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriftReport {
    /// Nothing new is known. What was reported before still counts.
    Unchanged,
    InSync,
    Drifted(String),
    Unknown(String),
}

/// Names the first objects that differ or could not be compared.
pub fn message<'a>(objects: impl IntoIterator<Item = &'a DriftedObject>, limit: usize) -> String {
    first(objects.into_iter().map(describe).collect(), limit)
}

/// Names the first objects that were corrected.
pub fn correction_message(corrected: &[ObjectComparison], limit: usize) -> String {
    let describe = |ObjectComparison { object, paths, .. }: &ObjectComparison| {
        // An object that was missing has no fields that differed.
        if paths.is_empty() { object.to_string() } else { format!("{object}: {}", fields(paths)) }
    };
    first(corrected.iter().map(describe).collect(), limit)
}

/// Returns the first parts of a text about objects, and the number of further ones.
pub(super) fn first(mut parts: Vec<String>, limit: usize) -> String {
    let more = parts.len().saturating_sub(limit);
    parts.truncate(limit);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

fn describe(DriftedObject { object, state, paths, reason }: &DriftedObject) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    match state {
        DriftedState::Missing => format!("{object} is missing{reason}"),
        DriftedState::Changed => format!("{object}: {}{reason}", fields(paths)),
        DriftedState::Unknown => format!("{object} could not be compared{reason}"),
    }
}

/// Names the first fields. How many more there are is not known: lists of fields are cut.
pub(super) fn fields(paths: &[String]) -> String {
    let named = paths.iter().take(NAMED_FIELDS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if paths.len() > NAMED_FIELDS { format!("{named} and more fields") } else { named }
}
