//! Operations to run.

use std::path::PathBuf;

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
    /// The inputs that have failed.
    pub rolled_back: InputDigest,
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
