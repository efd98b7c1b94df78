//! Whether the stored files of a Source are still what it asks for.

use super::SelectedRevision;
use crate::failure::Category;

/// What the stored files of a Source were fetched for.
#[derive(Clone, Copy, Debug)]
pub struct StoredFor<'a> {
    pub id: &'a str,
    /// Id of the annotated tag that the Source asked for.
    pub tag: Option<&'a str>,
    /// Digest of the keys that the signatures were verified with. `None` if none were required.
    pub verified_with: Option<&'a str>,
}

impl StoredFor<'_> {
    /// Returns whether the files are those of the selected revision, verified with the current keys, so that nothing has to
    /// be fetched.
    pub fn is_current(&self, selected: &SelectedRevision, keys: Option<&str>) -> bool {
        let tag = selected.tag.as_ref().map(|tag| tag.id.as_str());
        self.id == selected.id && self.tag == tag && self.verified_with == keys
    }

    /// Returns whether the files must not be used any more after a fetch failed. If the keys have changed since the files were
    /// verified, and the new keys do not accept what the repository has, nothing accepts the files. Any other failure keeps
    /// them.
    pub fn is_distrusted(&self, failure: Category, keys: Option<&str>) -> bool {
        failure == Category::VerificationFailed && self.verified_with != keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SelectedTag;

    const STORED: StoredFor<'_> = StoredFor { id: "c1", tag: Some("t1"), verified_with: Some("k1") };

    #[test]
    fn another_commit_tag_or_key_needs_a_fetch() {
        let selected = |id: &str, tag: Option<&str>| SelectedRevision {
            id: id.to_owned(),
            tag: tag.map(|id| SelectedTag { id: id.to_owned(), name: "v1".to_owned() }),
        };
        let rows = [
            (selected("c1", Some("t1")), Some("k1"), true),
            (selected("c2", Some("t1")), Some("k1"), false),
            (selected("c1", Some("t2")), Some("k1"), false),
            (selected("c1", None), Some("k1"), false),
            (selected("c1", Some("t1")), Some("k2"), false),
            (selected("c1", Some("t1")), None, false),
        ];
        for (selected, keys, expected) in rows {
            assert_eq!(STORED.is_current(&selected, keys), expected, "{selected:?} {keys:?}");
        }
    }

    #[test]
    fn only_changed_keys_that_refuse_the_repository_drop_the_files() {
        let rows = [
            (Category::VerificationFailed, Some("k2"), true),
            (Category::VerificationFailed, Some("k1"), false),
            (Category::SourceUnavailable, Some("k2"), false),
        ];
        for (failure, keys, expected) in rows {
            assert_eq!(STORED.is_distrusted(failure, keys), expected, "{failure} {keys:?}");
        }
    }
}
