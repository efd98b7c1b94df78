//! Selects the commit of a Git repository that a Source asks for.

use std::collections::BTreeSet;

use chandler_api::extensions::{GitReference, GitRepository};
use serde_json::json;

use crate::{
    digest::Digest,
    failure::{Category, Failure},
    resolution::Range,
    version,
};

const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
/// Number of names in a message.
const SHOWN: usize = 5;

/// A ref of a remote repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRef {
    /// Full name, such as `refs/heads/main` or `HEAD`.
    pub name: String,
    /// Id of the commit.
    pub commit: String,
    /// Id of the tag object. `None` for branches and lightweight tags.
    pub tag: Option<String>,
}

/// The refs of a remote repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteRefs(pub Vec<RemoteRef>);

/// The revision that a Source asks for: a commit, an artifact or a list of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRevision {
    /// Id of the commit, digest of the artifact, or digest of the list.
    pub id: String,
    /// The annotated tag that names the commit.
    pub tag: Option<SelectedTag>,
}

/// An annotated tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedTag {
    /// Id of the tag object.
    pub id: String,
    /// Name of the ref, without `refs/tags/`.
    pub name: String,
}

impl RemoteRefs {
    fn find(&self, name: &str) -> Option<&RemoteRef> {
        self.0.iter().find(|one| one.name == name)
    }

    /// Returns the short names of the refs below `prefix`.
    fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter_map(move |one| one.name.strip_prefix(prefix))
    }
}

/// Returns the names of all tags.
pub fn tag_names(refs: &RemoteRefs) -> impl Iterator<Item = &str> {
    refs.names(TAGS)
}

/// Returns a digest of all tags. It changes with every tag that is added, moved or removed.
pub fn tags_digest(refs: &RemoteRefs) -> Digest {
    let tags = refs.0.iter().filter(|one| one.name.starts_with(TAGS));
    let tags: BTreeSet<_> = tags.map(|one| (&one.name, &one.commit, &one.tag)).collect();
    Digest::of(json!(tags).to_string())
}

/// Returns the commit if the Source is pinned to one, so that its refs need not be listed.
pub fn pinned_commit(git: &GitRepository) -> Option<SelectedRevision> {
    let id = git.reference.as_ref()?.commit.clone()?;
    Some(SelectedRevision { id, tag: None })
}

/// Returns the commit that the Source asks for.
pub fn select_commit(git: &GitRepository, refs: &RemoteRefs) -> Result<SelectedRevision, Failure> {
    if let Some(pinned) = pinned_commit(git) {
        return Ok(pinned);
    }
    let found = match git.reference.as_ref() {
        Some(GitReference { branch: Some(branch), .. }) => named(git, refs, "branch", BRANCHES, branch)?,
        Some(GitReference { tag: Some(tag), .. }) => named(git, refs, "tag", TAGS, tag)?,
        Some(GitReference { semver: Some(range), .. }) => newest_tag(git, refs, range)?,
        _ => refs.find("HEAD").ok_or_else(|| {
            let why = "has no default branch, or it has no commits; push one, or set spec.git.ref";
            missing(format!("{} {why}", git.url))
        })?,
    };
    let name = found.name.strip_prefix(TAGS).unwrap_or(&found.name).to_owned();
    let tag = found.tag.clone().map(|id| SelectedTag { id, name });
    Ok(SelectedRevision { id: found.commit.clone(), tag })
}

fn named<'a>(
    git: &GitRepository,
    refs: &'a RemoteRefs,
    what: &str,
    prefix: &str,
    name: &str,
) -> Result<&'a RemoteRef, Failure> {
    refs.find(&format!("{prefix}{name}")).ok_or_else(|| {
        let others = shown(refs.names(prefix));
        missing(format!("{} has no {what} {name}; it has {others}; check spec.git.ref.{what}", git.url))
    })
}

/// Returns the tag with the newest version in the range.
fn newest_tag<'a>(git: &GitRepository, refs: &'a RemoteRefs, range: &str) -> Result<&'a RemoteRef, Failure> {
    range.parse::<Range>().map_err(|error| {
        Failure::new(Category::InvalidSpec, format!("spec.git.ref.semver is invalid: {error}"))
    })?;
    let chosen = version::choose(Some(range), refs.names(TAGS));
    chosen.and_then(|tag| refs.find(&format!("{TAGS}{tag}"))).ok_or_else(|| {
        let others = shown(refs.names(TAGS));
        let url = &git.url;
        missing(format!(
            "{url} has no tag with a version in {range}; it has {others}; check spec.git.ref.semver"
        ))
    })
}

/// Returns the first names, for a message.
pub(super) fn shown<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count <= SHOWN => names.join(", "),
        count => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
    }
}

fn missing(message: String) -> Failure {
    Failure::new(Category::PackageNotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs() -> RemoteRefs {
        let one = |name: &str, commit: &str, tag: Option<&str>| RemoteRef {
            name: name.to_owned(),
            commit: commit.to_owned(),
            tag: tag.map(str::to_owned),
        };
        RemoteRefs(vec![
            one("HEAD", "c1", None),
            one("refs/heads/main", "c1", None),
            one("refs/heads/feature/x", "c2", None),
            one("refs/tags/v1.2.0", "c3", Some("t3")),
            one("refs/tags/v1.10.0", "c4", None),
            one("refs/tags/v2.0.0-rc.1", "c5", None),
            one("refs/tags/latest", "c6", None),
        ])
    }

    fn git(reference: &serde_json::Value) -> GitRepository {
        serde_json::from_value(serde_json::json!({"url": "https://git.example/a", "ref": reference})).unwrap()
    }

    fn selected(reference: &serde_json::Value) -> Result<SelectedRevision, Failure> {
        select_commit(&git(reference), &refs())
    }

    #[test]
    fn branches_tags_ranges_and_commits_are_selected() {
        let rows = [
            (serde_json::json!(null), "c1", None),
            (serde_json::json!({"branch": "feature/x"}), "c2", None),
            (serde_json::json!({"tag": "v1.2.0"}), "c3", Some("t3")),
            (serde_json::json!({"semver": "1.x"}), "c4", None),
            (serde_json::json!({"semver": "~1.2"}), "c3", Some("t3")),
            (serde_json::json!({"semver": ">=2.0.0-0"}), "c5", None),
            (serde_json::json!({"commit": "abc"}), "abc", None),
        ];
        for (reference, commit, tag) in rows {
            let found = selected(&reference).unwrap();
            let found_tag = found.tag.as_ref().map(|tag| &*tag.id);
            assert_eq!((&*found.id, found_tag), (commit, tag), "{reference}");
            assert!(found.tag.is_none_or(|tag| tag.name == "v1.2.0"), "{reference}");
        }
    }

    #[test]
    fn a_missing_ref_is_a_failure_that_names_the_others() {
        let rows = [
            (serde_json::json!({"branch": "man"}), "no branch man; it has main, feature/x"),
            (serde_json::json!({"tag": "main"}), "no tag main; it has v1.2.0, v1.10.0"),
            (serde_json::json!({"semver": "3.x"}), "no tag with a version in 3.x"),
        ];
        for (reference, expected) in rows {
            let failure = selected(&reference).unwrap_err();
            assert_eq!(failure.category, Category::PackageNotFound);
            assert!(failure.message.contains(expected), "{failure}");
        }
        let invalid = selected(&serde_json::json!({"semver": "newest"})).unwrap_err();
        assert_eq!(invalid.category, Category::InvalidSpec);
        let empty = select_commit(&git(&serde_json::json!(null)), &RemoteRefs::default()).unwrap_err();
        assert!(empty.message.contains("no default branch"), "{empty}");
        let many = (0..9).map(|n| format!("b{n}")).collect::<Vec<_>>();
        assert_eq!(shown(many.iter().map(String::as_str)), "b0, b1, b2, b3, b4 and 4 more");
    }

    #[test]
    fn the_digest_of_the_tags_changes_with_every_tag_and_with_nothing_else() {
        let before = tags_digest(&refs());
        let changed = |change: fn(&mut Vec<RemoteRef>)| {
            let mut refs = refs();
            change(&mut refs.0);
            tags_digest(&refs) != before
        };
        assert!(!changed(|refs| refs[1].commit = "c9".to_owned()), "a push to a branch");
        assert!(!changed(|refs| refs.reverse()), "another order");
        assert!(changed(|refs| refs[4].commit = "c9".to_owned()), "a moved tag");
        assert!(
            changed(|refs| refs[3].tag = Some("t9".to_owned())),
            "another annotated tag of the same commit"
        );
        assert!(changed(|refs| drop(refs.pop())), "a deleted tag");
    }

    #[test]
    fn only_a_commit_pins_a_source() {
        assert!(pinned_commit(&git(&serde_json::json!({"commit": "abc"}))).is_some());
        assert!(pinned_commit(&git(&serde_json::json!({"branch": "main"}))).is_none());
        assert!(pinned_commit(&git(&serde_json::json!(null))).is_none());
    }
}
