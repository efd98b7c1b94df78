//! Failures in the contract's categories.

use chandler_core::failure::root_cause;
pub use chandler_tool::generated::tool::FailureCategory as Category;
use chandler_tool::generated::tool::{Failure as Message, ReleaseState};
use kube::{core::Status, error::DiscoveryError};

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub category: Category,
    pub message: String,
    /// The object of the request does not exist.
    pub missing: bool,
    /// The release after the failure, if known.
    pub state: Option<Box<ReleaseState>>,
}

impl Failure {
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), missing: false, state: None }
    }

    pub fn into_message(self) -> Message {
        Message {
            category: self.category.into(),
            message: self.message,
            state: self.state.map(|state| *state),
        }
    }

    /// Removes texts of the values from the message. Very short ones say nothing and occur everywhere.
    pub fn without(self, texts: &[String]) -> Self {
        let texts = texts.iter().filter(|text| text.len() > 3);
        let message = texts.fold(self.message, |message, text| message.replace(text.as_str(), "(value)"));
        Self { message, ..self }
    }

    /// Adds what failed.
    pub fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => from_status(&status),
            kube::Error::Discovery(DiscoveryError::MissingKind(kind)) => {
                Self::new(Category::Rejected, format!("the cluster does not serve {kind}"))
            }
            other => Self::new(
                Category::Unreachable,
                format!("the API server cannot be reached: {}", root_cause(&other)),
            ),
        }
    }
}

fn from_status(status: &Status) -> Failure {
    let terminating = has_cause(status, "NamespaceTerminating");
    let (category, what) = match status.code {
        401 => (Category::Unauthorized, "the API server does not accept the credentials"),
        403 if !terminating => (Category::Forbidden, "the credentials lack a permission"),
        409 => (Category::Conflict, "the object exists or has another owner"),
        429 | 503 | 504 => (Category::Unreachable, "the API server is not available"),
        _ => (Category::Rejected, "the API server rejected the request"),
    };
    Failure { missing: status.code == 404, ..Failure::new(category, format!("{what}: {}", message(status))) }
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

/// Returns the API server's message. That of an invalid object repeats values: its fields are enough.
fn message(status: &Status) -> String {
    if status.reason != "Invalid" {
        return status.message.clone();
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: Vec<_> = causes.map(|cause| format!("{} ({})", cause.field, cause.reason)).collect();
    fields.join(", ")
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    #[test]
    fn the_message_of_an_invalid_object_names_the_field_only() {
        let cause = StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: "Invalid value: \"canary\"".to_owned(),
            field: "spec.ports[0].port".to_owned(),
        };
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        let status = Status {
            code: 422,
            reason: "Invalid".to_owned(),
            message: "Service \"web\" is invalid: Invalid value: \"canary\"".to_owned(),
            details: Some(details),
            ..Status::default()
        };
        let failure = from_status(&status);
        assert_eq!(failure.category, Category::Rejected);
        assert!(failure.message.contains("spec.ports[0].port"), "{}", failure.message);
        assert!(!failure.message.contains("canary"), "{}", failure.message);
    }

    #[test]
    fn texts_of_the_values_are_not_repeated() {
        let failure = Failure::new(Category::Rejected, "got \"canary\" in field a");
        let message = failure.without(&["canary".to_owned(), "a".to_owned()]).message;
        assert_eq!(message, "got \"(value)\" in field a");
    }
}
