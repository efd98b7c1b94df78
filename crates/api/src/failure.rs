//! Failure categories, as stored in `status.lastFailure.category` and used as condition reasons.

use crate::string_enum::string_enum;

string_enum! {
    /// The category of a failure. It is the only part of a failure that metrics and Events contain.
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
        /// A required signature is missing or invalid.
        VerificationFailed = "VerificationFailed",
        /// A namespace uses as much of a shared resource as it may.
        QuotaExceeded = "QuotaExceeded",
        /// An AddonTenancy does not allow it.
        NotAllowed = "NotAllowed",
        ToolUnavailable = "ToolUnavailable",
        /// The process of the package tool has ended while it worked on this release and on nothing else.
        ToolCrashed = "ToolCrashed",
        Internal = "Internal",
    }
}

impl Category {
    /// Parses a stored category. Returns `Internal` if this version does not know it.
    pub fn parse(text: &str) -> Self {
        Self::ALL.iter().copied().find(|category| category.as_str() == text).unwrap_or(Self::Internal)
    }
}
