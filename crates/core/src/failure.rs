//! Failures as values: a category for machines and a message for users.

pub use chandler_api::failure::Category;

use crate::url_login::without_logins;

/// A failure: its category, and a message that says what happened, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub category: Category,
    /// Must not contain values or secrets.
    pub message: String,
}

impl Failure {
    /// Creates a failure. Logins in URLs are left out of the message.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, message: without_logins(&message.into()).into_owned() }
    }
}

/// Returns the first error of type `T` among an error and its sources.
pub fn cause<'a, T: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a T> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        current = error.source();
    }
    None
}

/// Returns the message of the last source of an error, which names the actual problem, such as a refused connection or
/// an unknown certificate authority.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_no_logins() {
        let failure = Failure::new(Category::InvalidSpec, "https://user:canary@charts.example is wrong");
        assert_eq!(failure.to_string(), "https://charts.example is wrong");
    }
}
