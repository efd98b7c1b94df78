use super::Reason;
use crate::failure::Category;

/// The reason of the `Ready` condition of a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceReason {
    Ready,
    /// `spec.suspend` is set. The last revision is used.
    Suspended,
    /// The repository could not be polled or fetched.
    Failed(Category),
}

impl SourceReason {
    pub fn all() -> impl Iterator<Item = Self> {
        let failed = Category::ALL.iter().copied().map(Self::Failed);
        [Self::Ready, Self::Suspended].into_iter().chain(failed)
    }
}

impl From<SourceReason> for Reason {
    fn from(reason: SourceReason) -> Self {
        Self(match reason {
            SourceReason::Ready => "Ready",
            SourceReason::Suspended => "Suspended",
            SourceReason::Failed(category) => category.as_str(),
        })
    }
}
