//! The cases, by topic.

mod lifecycle;

use super::Case;

/// Every case, in the order in which a person would try things.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [lifecycle::CASES].into_iter().flatten()
}
