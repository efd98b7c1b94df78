//! Operations on releases.

/// How inputs are applied to a release. It depends on the state of the newest revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyKind {
    Install,
    Upgrade,
    /// The newest revision is pending, but its operation has been interrupted.
    Recover,
}

/// The kind of an operation, as used in messages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    Apply(ApplyKind),
    Remove,
    /// Restores an earlier revision after the last retry has failed.
    Rollback,
    /// Removes the release after the last retry has failed. Its object stays, unlike that of a release that is removed.
    UninstallFailed,
    /// Compares the objects of the release with its package, and corrects them if the policy has `drift.mode: Correct`.
    Compare,
    /// Runs the tests of the package.
    Test,
}

impl OperationKind {
    pub const INSTALL: Self = Self::Apply(ApplyKind::Install);
    pub const UPGRADE: Self = Self::Apply(ApplyKind::Upgrade);
    pub const RECOVER: Self = Self::Apply(ApplyKind::Recover);
    pub const REMOVE: Self = Self::Remove;
    pub const ALL: [Self; 8] = [
        Self::INSTALL,
        Self::UPGRADE,
        Self::RECOVER,
        Self::REMOVE,
        Self::Rollback,
        Self::UninstallFailed,
        Self::Compare,
        Self::Test,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply(ApplyKind::Install) => "install",
            Self::Apply(ApplyKind::Upgrade) => "upgrade",
            Self::Apply(ApplyKind::Recover) => "recover",
            Self::Remove => "remove",
            Self::Rollback => "rollback",
            Self::UninstallFailed => "uninstall-failed",
            Self::Compare => "compare",
            Self::Test => "test",
        }
    }

    /// Returns whether it creates no revision, because it is about a release that is up to date.
    pub fn creates_no_revision(self) -> bool {
        matches!(self, Self::Compare | Self::Test)
    }
}

/// An operation with its inputs of type `I`. A removal and a comparison have none; those of a rollback are the ones that have
/// failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<I> {
    Apply { kind: ApplyKind, inputs: I },
    Remove,
    Rollback { inputs: I },
    UninstallFailed,
    Compare,
    Test { inputs: I },
}

impl<I> Operation<I> {
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Apply { kind, .. } => OperationKind::Apply(*kind),
            Self::Remove => OperationKind::Remove,
            Self::Rollback { .. } => OperationKind::Rollback,
            Self::UninstallFailed => OperationKind::UninstallFailed,
            Self::Compare => OperationKind::Compare,
            Self::Test { .. } => OperationKind::Test,
        }
    }

    /// Returns the same operation with borrowed inputs.
    pub fn borrowed(&self) -> Operation<&I> {
        match self {
            Self::Apply { kind, inputs } => Operation::Apply { kind: *kind, inputs },
            Self::Remove => Operation::Remove,
            Self::Rollback { inputs } => Operation::Rollback { inputs },
            Self::UninstallFailed => Operation::UninstallFailed,
            Self::Compare => Operation::Compare,
            Self::Test { inputs } => Operation::Test { inputs },
        }
    }

    /// Returns the same operation with its inputs converted by `f`.
    pub fn map<J>(self, f: impl FnOnce(I) -> J) -> Operation<J> {
        match self {
            Self::Apply { kind, inputs } => Operation::Apply { kind, inputs: f(inputs) },
            Self::Remove => Operation::Remove,
            Self::Rollback { inputs } => Operation::Rollback { inputs: f(inputs) },
            Self::UninstallFailed => Operation::UninstallFailed,
            Self::Compare => Operation::Compare,
            Self::Test { inputs } => Operation::Test { inputs: f(inputs) },
        }
    }
}
