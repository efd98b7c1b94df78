//! What an operation does to a release.

/// How a release is brought to its inputs: which state the plan saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyKind {
    Install,
    Upgrade,
    /// The newest revision is pending, and its operation is dead.
    Recover,
}

/// The kind of an operation, as reports and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    Apply(ApplyKind),
    Remove,
}

impl OperationKind {
    pub const INSTALL: Self = Self::Apply(ApplyKind::Install);
    pub const UPGRADE: Self = Self::Apply(ApplyKind::Upgrade);
    pub const RECOVER: Self = Self::Apply(ApplyKind::Recover);
    pub const REMOVE: Self = Self::Remove;
    pub const ALL: [Self; 4] = [Self::INSTALL, Self::UPGRADE, Self::RECOVER, Self::REMOVE];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply(ApplyKind::Install) => "install",
            Self::Apply(ApplyKind::Upgrade) => "upgrade",
            Self::Apply(ApplyKind::Recover) => "recover",
            Self::Remove => "remove",
        }
    }
}

/// An operation and what it needs: inputs to apply, in the form that the caller has them, or none to remove the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<I> {
    Apply { kind: ApplyKind, inputs: I },
    Remove,
}

impl<I> Operation<I> {
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Apply { kind, .. } => OperationKind::Apply(*kind),
            Self::Remove => OperationKind::Remove,
        }
    }

    /// The same operation on borrowed inputs.
    pub fn borrowed(&self) -> Operation<&I> {
        match self {
            Self::Apply { kind, inputs } => Operation::Apply { kind: *kind, inputs },
            Self::Remove => Operation::Remove,
        }
    }

    /// The same operation with its inputs in another form.
    pub fn map<J>(self, form: impl FnOnce(I) -> J) -> Operation<J> {
        match self {
            Self::Apply { kind, inputs } => Operation::Apply { kind, inputs: form(inputs) },
            Self::Remove => Operation::Remove,
        }
    }
}
