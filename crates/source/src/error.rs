use std::time::Duration;

use chandler_core::{
    addresses::RefusedAddress,
    failure::{Category, Failure},
    url_login::WithoutLogin,
};

use crate::{PolicyUnavailable, VerificationError};

/// A package, or a revision of a repository, is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{url} is not an https:// or oci:// address without a user name in it")]
    InvalidUrl { url: String },
    #[error("{url} is not the URL of a Git repository: {reason}")]
    InvalidGitUrl { url: String, reason: String },
    #[error("{url} is not allowed: {refused}")]
    AddressRefused { url: String, refused: RefusedAddress },
    #[error("cannot get {url}: {reason}")]
    RequestFailed { url: String, reason: String },
    #[error("{url} returned HTTP {status}: {hint}")]
    Status { url: String, status: u16, hint: &'static str },
    #[error("{url} has more than {limit} redirects")]
    TooManyRedirects { url: String, limit: usize },
    #[error("{url} did not send a complete response within {} s", limit.as_secs_f32())]
    Timeout { url: String, limit: Duration },
    #[error("{url} is larger than the limit of {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    #[error("the index of repository {url} is invalid: {reason}")]
    InvalidIndex { url: String, reason: String },
    #[error(
        "registry {url} does not list its repositories (HTTP {status}): set the names of the charts in \
         spec.filter.include, without *"
    )]
    NotListed { url: String, status: u16 },
    #[error("repository {url} has no chart {name}; check spec.chartName")]
    PackageNotFound { url: String, name: String },
    #[error("repository {url} has no version {version} of chart {name}; newest there: {newest}")]
    VersionNotFound { url: String, name: String, version: String, newest: String },
    #[error("{url} has no artifact {reference}; check spec.oci")]
    ArtifactNotFound { url: String, reference: String },
    #[error("{url} has digest {actual}, expected {expected}: it was corrupted or replaced")]
    DigestMismatch { url: String, expected: String, actual: String },
    #[error("{url} has {actual} bytes, expected {expected}: it was corrupted or replaced")]
    SizeMismatch { url: String, expected: u64, actual: u64 },
    #[error("{reference} is not a Helm chart: {reason}")]
    NotAChart { reference: String, reason: String },
    #[error("{url} is not a valid chart archive: {reason}; package it again with `helm package`")]
    InvalidArchive { url: String, reason: String },
    #[error("the files cannot be packed: {reason}")]
    NotPackable { reason: String },
    #[error("the values of the package are invalid: {0}")]
    InvalidValues(String),
    #[error("the certificate authority for {url} is not valid PEM")]
    InvalidCertificate { url: String },
    #[error("the credentials for {url} are invalid: {reason}")]
    InvalidCredentials { url: String, reason: &'static str },
    #[error(
        "the login of Secret {secret} is not sent to {host}, which its annotation chandler.dev/hosts does not list; correct the \
         URL, or let the owner of the Secret add the host"
    )]
    LoginRefused { secret: String, host: String },
    #[error(
        "namespace {namespace} has reached its quota for {resource}: {} MiB are in use, {} MiB more are needed, and {} MiB are \
         allowed; remove releases, catalogs and Sources that are not needed, leave out large folders with spec.ignore, or increase {flag}",
        mib(*used), mib(*added), mib(*quota)
    )]
    QuotaExceeded {
        namespace: String,
        resource: &'static str,
        used: u64,
        added: u64,
        quota: u64,
        /// The flag of the manager.
        flag: &'static str,
    },
    #[error("{resource} of all namespaces together would exceed {} MiB; this is retried. Increase {flag}", mib(*limit))]
    SharedQuotaExceeded {
        /// The namespace that needs more than is left for it.
        namespace: String,
        resource: &'static str,
        limit: u64,
        flag: &'static str,
    },
    #[error("{package} is not installed: {error}")]
    Unverified { package: String, error: VerificationError },
    #[error(
        "{package} is not installed: packages of https repositories cannot be verified; publish it in an OCI registry"
    )]
    Unverifiable { package: String },
    #[error(
        "the files of {url} are not used: the signature policy of the platform has changed since they were fetched; they are \
         verified at the next poll"
    )]
    NotVerifiedYet { url: String },
    #[error("nothing is installed: {0}")]
    PolicyUnavailable(#[from] PolicyUnavailable),
    #[error(
        "namespace {namespace} already reads as many repositories as it may at the same time; this is retried. Repositories that \
         do not answer delay the others of their namespace: suspend their Sources"
    )]
    Busy { namespace: String },
    #[error("cannot read the Git repository {url}: {reason}")]
    Git { url: String, reason: String },
    #[error("the ssh server of {url} is not trusted: {reason}")]
    UntrustedHostKey { url: String, reason: String },
    #[error("cannot read the bucket {url}: {reason}")]
    Bucket { url: String, reason: String },
    #[error("revision {revision} of {url} cannot be used: {reason}")]
    UnusableRevision { url: String, revision: String, reason: String },
    #[error("revision {revision} of {url} is not used: {reason}")]
    UnverifiedRevision { url: String, revision: String, reason: String },
    #[error("revision {revision} has no folder {path:?}; check the path")]
    PathMissing { revision: String, path: String },
    #[error("the package store failed: {0}")]
    Store(String),
}

impl SourceError {
    /// Returns the error for an invalid URL, without the login in it.
    pub(crate) fn invalid_url(url: &str) -> Self {
        Self::InvalidUrl { url: WithoutLogin(url).to_string() }
    }
}

/// Returns a size in MiB with one decimal.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let category = match error {
            SourceError::InvalidUrl { .. }
            | SourceError::InvalidGitUrl { .. }
            | SourceError::AddressRefused { .. }
            | SourceError::NotListed { .. }
            | SourceError::InvalidCertificate { .. }
            | SourceError::InvalidCredentials { .. } => Category::InvalidSpec,
            SourceError::LoginRefused { .. } => Category::GetCredentialsFailed,
            SourceError::QuotaExceeded { .. } | SourceError::SharedQuotaExceeded { .. } => {
                Category::QuotaExceeded
            }
            SourceError::PackageNotFound { .. }
            | SourceError::VersionNotFound { .. }
            | SourceError::ArtifactNotFound { .. }
            | SourceError::PathMissing { .. } => Category::PackageNotFound,
            SourceError::NotAChart { .. }
            | SourceError::InvalidArchive { .. }
            | SourceError::NotPackable { .. }
            | SourceError::InvalidValues(_)
            | SourceError::UnusableRevision { .. }
            | SourceError::SizeMismatch { .. }
            | SourceError::DigestMismatch { .. } => Category::InvalidPackage,
            SourceError::RequestFailed { .. }
            | SourceError::Status { .. }
            | SourceError::TooManyRedirects { .. }
            | SourceError::Timeout { .. }
            | SourceError::TooLarge { .. }
            | SourceError::InvalidIndex { .. }
            | SourceError::UntrustedHostKey { .. }
            | SourceError::Bucket { .. }
            | SourceError::Busy { .. }
            | SourceError::Git { .. } => Category::SourceUnavailable,
            SourceError::Unverified { .. }
            | SourceError::Unverifiable { .. }
            | SourceError::NotVerifiedYet { .. }
            | SourceError::UnverifiedRevision { .. }
            | SourceError::PolicyUnavailable(_) => Category::VerificationFailed,
            SourceError::Store(_) => Category::Internal,
        };
        Self::new(category, error.to_string())
    }
}
