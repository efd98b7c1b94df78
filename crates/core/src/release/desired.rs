//! What a release object asks for, in words that belong to no tool.

use std::{fmt, time::Duration};

use chandler_api::extensions::Reference;

use crate::identity::{ClusterKey, ReleaseId};

/// What a release object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub cluster: ClusterKey,
    pub release: ReleaseId,
    pub package: PackageReference,
    pub access: SourceAccess,
    pub values: Values,
    /// Names of objects of the same kind, whose releases have to be ready first.
    pub depends_on: Vec<String>,
    /// Whether the release is removed from a cluster that is being deleted, for what it holds outside of it.
    pub remove_with_cluster: bool,
    pub strategy: Strategy,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
}

/// Values; only the tool knows what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// As they were written.
    Text(String),
    /// Kept in a Secret, at [`VALUES_KEY`], with the digest of their text.
    Secret(SecretKey, String),
}

/// The key of a Secret at which values are kept.
pub const VALUES_KEY: &str = "values.yaml";

/// A package by name, as opposed to by content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackageReference {
    /// `https://…` or `oci://…`.
    pub repository: String,
    pub name: String,
    /// None: the newest.
    pub version: Option<String>,
}

impl fmt::Display for PackageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("latest");
        write!(f, "{}/{}:{version}", self.repository.trim_end_matches('/'), self.name)
    }
}

/// How to get at a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceAccess {
    /// Secret with the certificate authority at `ca.crt`.
    pub ca: Option<SecretKey>,
    /// Secret of credentials, and the key at which it may have a docker configuration.
    pub credentials: Option<(SecretKey, String)>,
    pub insecure_skip_tls_verify: bool,
    /// The catalog that knows the repository and how to get at it; the rest is empty then.
    pub catalog: Option<Reference>,
}

/// A Secret on the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SecretKey {
    pub namespace: String,
    pub name: String,
}

/// What happens after the first successful installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    Continuous,
    InstallOnce,
}

/// Options that change what the release looks like: a change of one is an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderingOptions {
    pub disable_hooks: bool,
    pub skip_crds: bool,
    pub sub_notes: bool,
    pub values_reuse: ValuesReuse,
}

/// How an upgrade treats the values of the revision before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValuesReuse {
    #[default]
    Reset,
    Reuse,
    ResetThenReuse,
}

/// Options of the next operation: a change of one adds no revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionOptions {
    pub create_namespace: bool,
    pub wait: bool,
    pub wait_for_jobs: bool,
    pub atomic: bool,
    pub take_ownership: bool,
    pub force: bool,
    pub cleanup_on_fail: bool,
    /// How many revisions to keep. 0: all.
    pub max_history: u32,
    pub timeout: Duration,
    pub keep_history: bool,
    pub removal_description: String,
}
