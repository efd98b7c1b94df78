//! A failure is a value: a category for machines, a message for people.

pub use chandler_api::failure::Category;

/// What went wrong: its kind, and in words what happened, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub category: Category,
    /// Never values or secrets.
    pub message: String,
}

impl Failure {
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, message: message.into() }
    }
}

/// The last cause of an error, which is the one that tells (connection refused, unknown certificate authority).
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
