//! The kinds of failures, as they are stored in `status.lastFailure.category` and in the reasons of conditions.

use crate::words::words;

words! {
    /// The kind of a failure. Metrics and Events carry nothing else of it.
    pub enum Category {
        InvalidPackage = "InvalidPackage",
        InvalidValues = "InvalidValues",
        InvalidSpec = "InvalidSpec",
        Conflict = "Conflict",
        Unreachable = "Unreachable",
        Unauthorized = "Unauthorized",
        Forbidden = "Forbidden",
        Timeout = "Timeout",
        HookFailed = "HookFailed",
        NotReady = "NotReady",
        Cancelled = "Cancelled",
        Rejected = "Rejected",
        SourceUnavailable = "SourceUnavailable",
        PackageNotFound = "PackageNotFound",
        GetCredentialsFailed = "GetCredentialsFailed",
        GetCaCertificateFailed = "GetCACertificateFailed",
        /// A required signature is missing or is not a valid one.
        VerificationFailed = "VerificationFailed",
        ToolUnavailable = "ToolUnavailable",
        Internal = "Internal",
    }
}

impl Category {
    /// Reads a stored word. A word that this version does not know is `Internal`.
    pub fn parse(word: &str) -> Self {
        Self::ALL.iter().copied().find(|category| category.as_str() == word).unwrap_or(Self::Internal)
    }
}
