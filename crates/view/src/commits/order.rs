//! The order of the revisions of a Source.

use chandler_api::extensions::Source;

/// Where a revision is, compared with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    Same,
    /// The Source had it after the commit.
    Later,
    Earlier,
    /// Neither is among the last revisions of the Source.
    Unknown,
}

/// Compares revisions of a Source with a commit.
pub struct Order<'a> {
    commit: &'a str,
    /// The last revisions of the Source, newest first.
    history: Vec<&'a str>,
    is_used: bool,
    is_followed: bool,
}

impl<'a> Order<'a> {
    /// `source` is `None` if the Source cannot be read. `used` has the revisions that releases and Syncs use, and whether
    /// they follow the Source instead of a tag.
    pub fn new(source: Option<&'a Source>, used: &[(String, bool)], commit: &'a str) -> Self {
        let status = source.and_then(|source| source.status.as_ref());
        let history: Vec<_> =
            status.into_iter().flat_map(|status| &status.history).map(|one| one.revision.as_str()).collect();
        let same: Vec<_> = used.iter().filter(|(revision, _)| revision == commit).collect();
        let is_followed = history.contains(&commit) || same.iter().any(|(_, follows)| *follows);
        Self { commit, history, is_used: !same.is_empty(), is_followed }
    }

    /// Returns whether the Source has or had the commit, as far as is known.
    pub fn is_known(&self) -> bool {
        self.is_used || self.is_followed
    }

    /// Returns whether the commit is or was the revision of the Source. `false` means that only tags use it.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Returns whether the Source had `revision` after the commit, or whether it is the commit.
    pub fn is_reached(&self, revision: &str) -> bool {
        matches!(self.position(revision), Position::Same | Position::Later)
    }

    pub fn position(&self, revision: &str) -> Position {
        if revision == self.commit {
            return Position::Same;
        }
        let find = |wanted: &str| self.history.iter().position(|known| *known == wanted);
        match (find(revision), find(self.commit)) {
            (Some(revision), Some(commit)) if revision < commit => Position::Later,
            // What is no longer in the history is earlier than what is.
            (Some(_), None) => Position::Later,
            (_, Some(_)) => Position::Earlier,
            (None, None) => Position::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::source;

    #[test]
    fn the_history_of_the_source_orders_revisions() {
        let source = source("apps", &["c3", "c2"]);
        let rows = [
            ("c2", "c2", Position::Same),
            ("c2", "c3", Position::Later),
            ("c3", "c2", Position::Earlier),
            ("c3", "c1", Position::Earlier),
            ("c1", "c2", Position::Later),
            ("c1", "c0", Position::Unknown),
        ];
        for (commit, revision, expected) in rows {
            let order = Order::new(Some(&source), &[], commit);
            assert_eq!(order.position(revision), expected, "{commit} {revision}");
        }
    }

    #[test]
    fn a_commit_that_only_tags_use_is_not_followed() {
        let used = vec![("c1".to_owned(), false), ("c2".to_owned(), true)];
        let rows = [("c1", true, false), ("c2", true, true), ("c3", false, false)];
        for (commit, is_known, is_followed) in rows {
            let order = Order::new(None, &used, commit);
            assert_eq!((order.is_known(), order.is_followed()), (is_known, is_followed), "{commit}");
        }
    }
}
