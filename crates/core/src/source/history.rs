//! The last revisions of a Source.

use chandler_api::extensions::SourceRevision;

/// Number of revisions in a status.
const KEPT: usize = 10;

/// Returns the revisions, newest first, after the Source got `newest`. The same revision again changes nothing.
pub fn history(old: &[SourceRevision], newest: SourceRevision) -> Vec<SourceRevision> {
    if old.first().is_some_and(|first| first.revision == newest.revision) {
        return old.to_vec();
    }
    std::iter::once(newest).chain(old.iter().cloned()).take(KEPT).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn revision(revision: &str, second: i64) -> SourceRevision {
        let at = Time(Timestamp::from_second(second).unwrap());
        SourceRevision { revision: revision.to_owned(), subject: String::new(), at }
    }

    #[test]
    fn ten_revisions_are_kept_newest_first_and_a_revert_is_a_revision() {
        let mut all = Vec::new();
        for n in 0..12 {
            all = history(&all, revision(&format!("c{n}"), n));
        }
        assert_eq!((all.len(), &*all[0].revision, &*all[9].revision), (10, "c11", "c2"));
        assert_eq!(history(&all, revision("c11", 99)), all, "the same revision again changes nothing");
        let reverted = history(&all, revision("c10", 99));
        assert_eq!((&*reverted[0].revision, &*reverted[1].revision), ("c10", "c11"));
    }
}
