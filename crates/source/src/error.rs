use chandler_core::failure::{Category, Failure};

/// Why a package cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    #[error("repository {url} is not an https:// or oci:// address")]
    BadAddress { url: String },
    #[error("cannot get {url}: {reason}")]
    Get { url: String, reason: String },
    #[error("{url} is larger than the limit of {limit} bytes")]
    TooLarge { url: String, limit: usize },
    #[error("the index of repository {url} cannot be read: {reason}")]
    BadIndex { url: String, reason: String },
    #[error("repository {url} has no chart {name}; check spec.chartName")]
    NoSuchPackage { url: String, name: String },
    #[error("repository {url} has no version {version} of chart {name}; newest there: {newest}")]
    NoSuchVersion { url: String, name: String, version: String, newest: String },
    #[error("{url} has digest {actual}, but {expected} was announced: it was damaged or exchanged")]
    DigestMismatch { url: String, expected: String, actual: String },
    #[error("{reference} is not a Helm chart: its manifest has no chart layer")]
    NotAPackage { reference: String },
    #[error("the certificate authority for {url} is not valid PEM")]
    BadCertificate { url: String },
    #[error("the credentials for {url} are not a docker configuration in JSON")]
    BadCredentials { url: String },
    #[error("cannot write to the package store: {0}")]
    Store(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let category = match error {
            SourceError::BadAddress { .. }
            | SourceError::BadCertificate { .. }
            | SourceError::BadCredentials { .. } => Category::InvalidSpec,
            SourceError::NoSuchPackage { .. } | SourceError::NoSuchVersion { .. } => {
                Category::PackageNotFound
            }
            SourceError::NotAPackage { .. } | SourceError::DigestMismatch { .. } => Category::InvalidPackage,
            SourceError::Get { .. } | SourceError::TooLarge { .. } | SourceError::BadIndex { .. } => {
                Category::SourceUnavailable
            }
            SourceError::Store(_) => Category::Internal,
        };
        Self::new(category, error.to_string())
    }
}
