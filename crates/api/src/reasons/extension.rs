use super::Reason;
use crate::failure::Category;

/// The reason of the `Ready` condition of an Extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionReason {
    Published,
    /// A version is invalid.
    InvalidVersion,
    /// There is no version, or every one is withdrawn.
    NoAvailableVersion,
    /// The versions could not be read.
    Failed(Category),
}

impl ExtensionReason {
    pub fn all() -> impl Iterator<Item = Self> {
        let failed = Category::ALL.iter().copied().map(Self::Failed);
        [Self::Published, Self::InvalidVersion, Self::NoAvailableVersion].into_iter().chain(failed)
    }
}

impl From<ExtensionReason> for Reason {
    fn from(reason: ExtensionReason) -> Self {
        Self(match reason {
            ExtensionReason::Published => "Published",
            ExtensionReason::InvalidVersion => "InvalidVersion",
            ExtensionReason::NoAvailableVersion => "NoAvailableVersion",
            ExtensionReason::Failed(category) => category.as_str(),
        })
    }
}
