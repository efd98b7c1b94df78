//! A failure is a value: a category for machines, a message for people.

use std::fmt;

/// The kind of a failure. The only thing metrics and Events carry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    InvalidPackage,
    InvalidValues,
    InvalidSpec,
    Conflict,
    Unreachable,
    Unauthorized,
    Forbidden,
    Timeout,
    HookFailed,
    NotReady,
    Cancelled,
    Rejected,
    SourceUnavailable,
    PackageNotFound,
    ToolUnavailable,
    Internal,
}

impl Category {
    /// One word, stable: it appears in status, Events and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidPackage => "InvalidPackage",
            Self::InvalidValues => "InvalidValues",
            Self::InvalidSpec => "InvalidSpec",
            Self::Conflict => "Conflict",
            Self::Unreachable => "Unreachable",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Timeout => "Timeout",
            Self::HookFailed => "HookFailed",
            Self::NotReady => "NotReady",
            Self::Cancelled => "Cancelled",
            Self::Rejected => "Rejected",
            Self::SourceUnavailable => "SourceUnavailable",
            Self::PackageNotFound => "PackageNotFound",
            Self::ToolUnavailable => "ToolUnavailable",
            Self::Internal => "Internal",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
