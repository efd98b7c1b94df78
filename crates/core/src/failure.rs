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
    GetCredentialsFailed,
    GetCaCertificateFailed,
    /// A signature that is demanded is missing or is not the right one.
    VerificationFailed,
    ToolUnavailable,
    Internal,
}

impl Category {
    const WORDS: [(&'static str, Self); 19] = [
        ("InvalidPackage", Self::InvalidPackage),
        ("InvalidValues", Self::InvalidValues),
        ("InvalidSpec", Self::InvalidSpec),
        ("Conflict", Self::Conflict),
        ("Unreachable", Self::Unreachable),
        ("Unauthorized", Self::Unauthorized),
        ("Forbidden", Self::Forbidden),
        ("Timeout", Self::Timeout),
        ("HookFailed", Self::HookFailed),
        ("NotReady", Self::NotReady),
        ("Cancelled", Self::Cancelled),
        ("Rejected", Self::Rejected),
        ("SourceUnavailable", Self::SourceUnavailable),
        ("PackageNotFound", Self::PackageNotFound),
        ("GetCredentialsFailed", Self::GetCredentialsFailed),
        ("GetCACertificateFailed", Self::GetCaCertificateFailed),
        ("VerificationFailed", Self::VerificationFailed),
        ("ToolUnavailable", Self::ToolUnavailable),
        ("Internal", Self::Internal),
    ];

    /// One word, stable: it appears in status, Events and metric labels.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, category)| *category == self).map_or("Internal", |(word, _)| word)
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Self {
        Self::WORDS.iter().find(|(known, _)| *known == word).map_or(Self::Internal, |(_, category)| *category)
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

/// The last cause of an error, which is the one that tells (connection refused, unknown certificate authority).
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
