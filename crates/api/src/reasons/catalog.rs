use super::Reason;
use crate::failure::Category;

/// The reason of the `Ready` condition of an ExtensionCatalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogReason {
    Ready,
    /// `spec.verify` requires signatures that cannot be verified.
    VerificationUnavailable,
    /// The source could not be read.
    Failed(Category),
}

impl CatalogReason {
    pub fn all() -> impl Iterator<Item = Self> {
        let failed = Category::ALL.iter().copied().map(Self::Failed);
        [Self::Ready, Self::VerificationUnavailable].into_iter().chain(failed)
    }
}

impl From<CatalogReason> for Reason {
    fn from(reason: CatalogReason) -> Self {
        Self(match reason {
            CatalogReason::Ready => "Ready",
            CatalogReason::VerificationUnavailable => "VerificationUnavailable",
            CatalogReason::Failed(category) => category.as_str(),
        })
    }
}
