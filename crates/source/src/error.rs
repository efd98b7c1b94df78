use std::time::Duration;

use chandler_core::failure::{Category, Failure};

use crate::{Refusal, addresses::RefusedAddress};

/// Why a package cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{url} is not an https:// or oci:// address without a user name in it")]
    BadAddress { url: String },
    #[error("{url} is not asked: {refused}")]
    Refused { url: String, refused: RefusedAddress },
    #[error("cannot get {url}: {reason}")]
    Get { url: String, reason: String },
    #[error("{url} answers {status}: {hint}")]
    Status { url: String, status: u16, hint: &'static str },
    #[error("{url} leads through more than {limit} redirects")]
    Redirects { url: String, limit: usize },
    #[error("{url} did not answer in full within {} s", limit.as_secs_f32())]
    TooSlow { url: String, limit: Duration },
    #[error("{url} is larger than the limit of {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    #[error("the index of repository {url} cannot be used: {reason}")]
    BadIndex { url: String, reason: String },
    #[error(
        "registry {url} does not list what it has (it answers {status}): name its charts in spec.filter.include, \
         without *"
    )]
    NotListed { url: String, status: u16 },
    #[error("repository {url} has no chart {name}; check spec.chartName")]
    NoSuchPackage { url: String, name: String },
    #[error("repository {url} has no version {version} of chart {name}; newest there: {newest}")]
    NoSuchVersion { url: String, name: String, version: String, newest: String },
    #[error("{url} has digest {actual}, but {expected} was announced: it was damaged or exchanged")]
    DigestMismatch { url: String, expected: String, actual: String },
    #[error("{url} has {actual} bytes, but {expected} were announced: it was damaged or exchanged")]
    SizeMismatch { url: String, expected: u64, actual: u64 },
    #[error("{reference} is not a Helm chart: {reason}")]
    NotAPackage { reference: String, reason: String },
    #[error(
        "{url} is not a chart archive that can be trusted: {reason}; have it packed anew by `helm package`"
    )]
    BadArchive { url: String, reason: String },
    #[error("the values of the package cannot be used: {0}")]
    BadValues(String),
    #[error("the certificate authority for {url} is not valid PEM")]
    BadCertificate { url: String },
    #[error("the credentials for {url} cannot be used: {reason}")]
    BadCredentials { url: String, reason: &'static str },
    #[error("{package} is not installed: {refusal}")]
    Unverified { package: String, refusal: Refusal },
    #[error(
        "{package} is not installed: packages of https repositories cannot be verified; publish it in a registry"
    )]
    Unverifiable { package: String },
    #[error("nothing is installed, because what has to be signed is not known: {0}")]
    NoPolicy(String),
    #[error("cannot write to the package store: {0}")]
    Store(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let category = match error {
            SourceError::BadAddress { .. }
            | SourceError::Refused { .. }
            | SourceError::NotListed { .. }
            | SourceError::BadCertificate { .. }
            | SourceError::BadCredentials { .. } => Category::InvalidSpec,
            SourceError::NoSuchPackage { .. } | SourceError::NoSuchVersion { .. } => {
                Category::PackageNotFound
            }
            SourceError::NotAPackage { .. }
            | SourceError::BadArchive { .. }
            | SourceError::BadValues(_)
            | SourceError::SizeMismatch { .. }
            | SourceError::DigestMismatch { .. } => Category::InvalidPackage,
            SourceError::Get { .. }
            | SourceError::Status { .. }
            | SourceError::Redirects { .. }
            | SourceError::TooSlow { .. }
            | SourceError::TooLarge { .. }
            | SourceError::BadIndex { .. } => Category::SourceUnavailable,
            SourceError::Unverified { .. } | SourceError::Unverifiable { .. } | SourceError::NoPolicy(_) => {
                Category::VerificationFailed
            }
            SourceError::Store(_) => Category::Internal,
        };
        Self::new(category, error.to_string())
    }
}
