//! Remembers revisions that cannot be used, so that they are not fetched again at every poll.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_core::failure::{Category, Failure};

use crate::locks::Mutex;

/// After this time a revision is fetched again: the server may have sent it incompletely.
const REMEMBERED: Duration = Duration::from_mins(10);

/// The last revision of each Source that could not be used, by the key of its files in the store.
#[derive(Debug, Default)]
pub(super) struct RefusedRevisions(Mutex<HashMap<String, Refused>>);

#[derive(Debug)]
struct Refused {
    /// The revision, and what decides whether it can be used.
    attempt: String,
    at: Instant,
    failure: Failure,
}

impl RefusedRevisions {
    /// Returns why a revision could not be used, if it would be the same again.
    pub fn get(&self, key: &str, attempt: &str) -> Option<Failure> {
        let refused = self.0.lock();
        let refused = refused.get(key).filter(|refused| refused.attempt == attempt && is_recent(refused))?;
        Some(refused.failure.clone())
    }

    /// Records why a revision could not be used, if that depends on the revision only.
    pub fn record(&self, key: &str, attempt: String, failure: &Failure) {
        if !matches!(failure.category, Category::InvalidPackage | Category::VerificationFailed) {
            return;
        }
        let mut all = self.0.lock();
        all.retain(|_, refused| is_recent(refused));
        all.insert(key.to_owned(), Refused { attempt, at: Instant::now(), failure: failure.clone() });
    }
}

fn is_recent(refused: &Refused) -> bool {
    refused.at.elapsed() < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_depends_on_the_revision_is_remembered() {
        let refused = RefusedRevisions::default();
        let rows = [
            (Category::InvalidPackage, true),
            (Category::VerificationFailed, true),
            (Category::SourceUnavailable, false),
            (Category::Timeout, false),
        ];
        for (category, expected) in rows {
            let (key, failure) = (category.to_string(), Failure::new(category, "why"));
            refused.record(&key, "c1".to_owned(), &failure);
            assert_eq!(refused.get(&key, "c1"), expected.then_some(failure), "{category}");
            assert_eq!(refused.get(&key, "c2"), None, "another revision");
            assert_eq!(refused.get("other", "c1"), None, "another Source");
        }
    }
}
