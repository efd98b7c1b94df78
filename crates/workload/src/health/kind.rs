//! The kinds of watched objects.

use std::{collections::BTreeSet, fmt, sync::Arc};

use chandler_core::health::has_status;

/// Maximum number of watches of a cluster: an API server allows 100 requests at a time on a connection, and some of them are
/// for lists.
pub const MAX_WATCHES: usize = 90;

/// A kind with its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKind {
    pub api_version: String,
    pub kind: String,
}

/// Many releases use the same kinds.
pub type SharedKind = Arc<ObjectKind>;

impl ObjectKind {
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// Returns whether the state of an object is in its status. Of other objects, only the metadata are read.
    pub fn has_status(&self) -> bool {
        has_status(&self.api_version, &self.kind)
    }

    /// Returns whether a cluster may not serve the kind, because its API group may not be installed.
    pub fn is_optional(&self) -> bool {
        self.api_version.contains('/')
    }

    /// Returns the path of the group and version, or `None` if it is not one.
    pub fn group_path(&self) -> Option<String> {
        let is_word = |text: &str| {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
                && !text.contains("..")
        };
        match self.api_version.split_once('/') {
            Some((group, version)) if is_word(group) && is_word(version) => {
                Some(format!("/apis/{group}/{version}"))
            }
            None if is_word(&self.api_version) => Some(format!("/api/{}", self.api_version)),
            _ => None,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.api_version)
    }
}

/// Selects the kinds to watch: all in use, unless there are too many. Then kinds with a status win, because more can go wrong
/// with their objects.
pub fn watched(mut used: Vec<SharedKind>) -> BTreeSet<SharedKind> {
    used.sort_by_key(|kind| (!kind.has_status(), kind.clone()));
    used.dedup();
    used.into_iter().take(MAX_WATCHES).collect()
}

/// The watches to open and to close.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchChanges {
    pub open: Vec<SharedKind>,
    pub close: Vec<SharedKind>,
}

/// Compares the open watches with the kinds to watch.
pub fn watch_changes<'a>(
    open: impl Iterator<Item = &'a SharedKind>,
    wanted: &BTreeSet<SharedKind>,
) -> WatchChanges {
    let open: BTreeSet<&SharedKind> = open.collect();
    WatchChanges {
        open: wanted.iter().filter(|kind| !open.contains(kind)).cloned().collect(),
        close: open.into_iter().filter(|kind| !wanted.contains(*kind)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(names: &[&str]) -> BTreeSet<SharedKind> {
        names.iter().map(|name| Arc::new(ObjectKind::new("apps/v1", *name))).collect()
    }

    fn list(names: &[&str]) -> Vec<SharedKind> {
        kinds(names).into_iter().collect()
    }

    /// Watched kinds, used kinds; those whose watch opens, those whose watch ends.
    type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [&'a str]);

    #[test]
    fn watches_follow_the_kinds_in_use() {
        let rows: [Row<'_>; 5] = [
            (&[], &[], &[], &[]),
            (&[], &["DaemonSet", "Deployment"], &["DaemonSet", "Deployment"], &[]),
            (&["Deployment"], &["Deployment"], &[], &[]),
            (&["DaemonSet", "Deployment"], &["Deployment", "StatefulSet"], &["StatefulSet"], &["DaemonSet"]),
            (&["DaemonSet"], &[], &[], &["DaemonSet"]),
        ];
        for (open, wanted, opened, closed) in rows {
            let changes = watch_changes(kinds(open).iter(), &kinds(wanted));
            let expected = WatchChanges { open: list(opened), close: list(closed) };
            assert_eq!(changes, expected, "{open:?} {wanted:?}");
        }
    }

    #[test]
    fn of_too_many_kinds_those_with_a_status_are_watched() {
        let deployment = Arc::new(ObjectKind::new("apps/v1", "Deployment"));
        let config_map = Arc::new(ObjectKind::new("v1", "ConfigMap"));
        let few = watched(vec![config_map.clone(), deployment.clone(), config_map.clone()]);
        assert_eq!(few, [config_map.clone(), deployment.clone()].into());

        let custom =
            (0..MAX_WATCHES - 1).map(|n| Arc::new(ObjectKind::new("example.dev/v1", format!("K{n}"))));
        let many = watched(custom.chain([config_map.clone(), deployment.clone()]).collect());
        assert_eq!(many.len(), MAX_WATCHES);
        assert!(many.contains(&deployment) && !many.contains(&config_map));
    }

    #[test]
    fn only_valid_versions_have_a_path() {
        let rows = [
            ("v1", Some("/api/v1")),
            ("apps/v1", Some("/apis/apps/v1")),
            ("cert-manager.io/v1", Some("/apis/cert-manager.io/v1")),
            ("", None),
            ("apps/", None),
            ("apps/v1/deployments", None),
            ("../v1", None),
            ("apps/v1?watch=true", None),
        ];
        for (api_version, path) in rows {
            assert_eq!(ObjectKind::new(api_version, "K").group_path().as_deref(), path, "{api_version}");
        }
    }
}
