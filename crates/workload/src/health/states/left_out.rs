//! Releases whose objects are not kept.

use std::collections::HashSet;

use chandler_core::identity::ReleaseId;

/// Maximum number of releases that are remembered.
const MAX_RELEASES: usize = 1_000;

/// The releases whose objects of a kind were left out since its last list, because the manager does not know these releases.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    releases: HashSet<ReleaseId>,
    /// There were more releases than are remembered.
    is_incomplete: bool,
}

impl Extend<ReleaseId> for LeftOut {
    /// Takes in that objects of releases were left out.
    fn extend<I: IntoIterator<Item = ReleaseId>>(&mut self, releases: I) {
        for release in releases {
            if self.releases.len() < MAX_RELEASES || self.releases.contains(&release) {
                self.releases.insert(release);
            } else {
                self.is_incomplete = true;
            }
        }
    }
}

impl LeftOut {
    /// Returns whether objects of a release may have been left out.
    pub fn may_contain(&self, release: &ReleaseId) -> bool {
        self.is_incomplete || self.releases.contains(release)
    }

    /// Returns the number of releases that are remembered.
    pub fn len(&self) -> usize {
        self.releases.len()
    }

    /// Returns the releases that are remembered.
    pub fn remembered(&self) -> impl Iterator<Item = &ReleaseId> {
        self.releases.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_releases_any_may_have_been_left_out() {
        let release = |number: usize| ReleaseId::new("shop", format!("release-{number}"));
        let mut left_out = LeftOut::default();
        left_out.extend((0..MAX_RELEASES).map(release));
        left_out.extend([release(0)]);
        assert!(left_out.may_contain(&release(0)) && !left_out.may_contain(&release(MAX_RELEASES)));
        left_out.extend([release(MAX_RELEASES)]);
        assert!(left_out.may_contain(&release(MAX_RELEASES)));
        assert_eq!(left_out.remembered().count(), MAX_RELEASES);
    }
}
