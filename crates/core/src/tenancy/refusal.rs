//! Why a release is not changed.

use crate::failure::Failure;

/// Why AddonTenancies do not let a release be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An AddonTenancy does not allow it.
    NotAllowed(Failure),
    /// It is not known whether it is allowed, for example because the labels of its namespace cannot be read. That says nothing
    /// about a release that is up to date.
    Unknown(Failure),
}

impl Refusal {
    /// Returns what happened, for users.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::NotAllowed(failure) | Self::Unknown(failure) => failure,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotAllowed(failure) | Refusal::Unknown(failure) => failure,
        }
    }
}
