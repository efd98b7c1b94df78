//! Operations to run.

use std::{path::PathBuf, time::Duration};

use chandler_api::{
    extensions::{DriftIgnore, FieldConflicts},
    status::ObjectRecord,
};
use chandler_core::{
    digest::{Digest, InputDigest},
    identity::ReleaseId,
    package_format::PackageFormat,
    release::{ApplyKind, ExecutionOptions, RenderingOptions},
    target::Target,
};

/// A package on the local disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    pub path: PathBuf,
    pub digest: Digest,
    pub format: PackageFormat,
}

/// An install or upgrade to run.
#[derive(Clone, Debug)]
pub struct ApplyOrder {
    pub operation_id: String,
    pub target: Target,
    pub release: ReleaseId,
    pub package: PackageFile,
    pub values: String,
    pub kind: ApplyKind,
    pub inputs: InputDigest,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
}

/// A rollback to run.
#[derive(Clone, Debug)]
pub struct RollbackOrder {
    pub operation_id: String,
    pub target: Target,
    pub release: ReleaseId,
    /// The revision to restore.
    pub revision: u32,
    /// The inputs of that revision.
    pub inputs: InputDigest,
    /// The inputs that are rolled back, because they have failed or a user has asked for it.
    pub rolled_back: InputDigest,
    /// Roll back although the newest revision is deployed and did not fail.
    pub roll_back_deployed: bool,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
}

/// A comparison of a release's objects with those that its newest revision records.
#[derive(Clone, Debug)]
pub struct CompareOrder {
    pub operation_id: String,
    pub target: Target,
    pub release: ReleaseId,
    /// The newest revision. The comparison fails with a conflict if it is another one, or if it is not deployed.
    pub revision: u32,
    /// The objects to compare, as in the revision's inventory. Empty means all of them.
    pub objects: Vec<ObjectRecord>,
    /// Apply the recorded objects that are missing or differ.
    pub correct: bool,
    pub ignore: Vec<DriftIgnore>,
    /// With `IgnoreFields`, fields that belong to other field managers are not compared.
    pub conflicts: FieldConflicts,
    pub timeout: Duration,
}

/// The tests of a release to run.
#[derive(Clone, Debug)]
pub struct TestOrder {
    pub operation_id: String,
    pub target: Target,
    pub release: ReleaseId,
    /// The newest revision. The tests fail with a conflict if it is another one, or if it is not deployed.
    pub revision: u32,
    /// Of all tests together.
    pub timeout: Duration,
    /// Return the last lines that a failed test has logged.
    pub logs: bool,
}

/// What to render: the objects that an install or upgrade would apply.
#[derive(Clone, Debug)]
pub struct RenderOrder {
    pub target: Target,
    pub release: ReleaseId,
    /// `None` means that only the objects of the stored revision are returned.
    pub package: Option<PackageFile>,
    pub values: String,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
}

/// A removal to run.
#[derive(Clone, Debug)]
pub struct RemoveOrder {
    pub operation_id: String,
    pub target: Target,
    pub release: ReleaseId,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
}
