//! Package sources (Helm repositories and OCI registries), Git repositories and OCI artifacts, and the content-addressed store
//! of what was downloaded.

mod access;
mod access_digest;
mod archive;
mod bucket;
mod catalog;
mod error;
mod file_range;
mod git;
mod http;
mod index;
mod index_budget;
mod index_changes;
mod limits;
mod namespace_semaphore;
mod oci;
mod pack;
mod packages;
mod quotas;
mod repositories;
mod shared_fetches;
mod signature;
mod single_flight;
mod store;
mod tree;
mod values;
mod verification;

pub use access::{Access, Credentials, SecretError};
pub use bucket::BucketObjects;
pub use catalog::{Catalog, CatalogRequest, Chart, ChartSummary};
pub use chandler_core::addresses::{AddressPolicy, AddressRange};
pub use error::SourceError;
pub use git::{GitCommit, GitKeyError, GitKeys, GitRequest};
pub use hyper_util::client::proxy::matcher::Matcher as ProxyMatcher;
pub use limits::{GitLimits, Limits, TreeLimits};
pub use namespace_semaphore::{NamespacePermit, NamespaceSemaphore};
pub use oci::{Artifact, ArtifactFiles};
pub use pack::PackedFiles;
pub use packages::{Packages, PublishedVersion, ResolvedPackage, SourceOptions};
pub use quotas::{FilesOwner, QuotaUsage, SourceQuotas};
pub use signature::{
    ExpectedIdentity, KeyError, PolicyError, PolicyUnavailable, RuleError, SignaturePolicy, Signers,
    SignersError, SignersSpec, SourcePrefixError, TrustedRootError, VerificationError,
};
pub use store::{Retention, Store, StoredPackage, StoredRevision};
pub use tree::SourceTree;
pub use values::PackageValues;
