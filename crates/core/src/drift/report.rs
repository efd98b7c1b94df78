//! What users learn about drift.

use chandler_api::status::{DriftedObject, DriftedState};

/// Maximum number of objects, and of fields of each, in a message.
pub(super) const NAMED_OBJECTS: usize = 3;
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

/// Names the first objects.
pub(super) fn message<'a>(objects: impl Iterator<Item = &'a DriftedObject>) -> String {
    first_objects(objects.map(describe).collect(), NAMED_OBJECTS)
}

/// Returns the first parts of a text about objects, and the number of further ones.
pub(super) fn first_objects(mut parts: Vec<String>, limit: usize) -> String {
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

/// Names the first fields.
pub fn fields(paths: &[String]) -> String {
    let named: Vec<&str> = paths.iter().take(NAMED_FIELDS).map(String::as_str).collect();
    match paths.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more fields", named.join(", ")),
    }
}
