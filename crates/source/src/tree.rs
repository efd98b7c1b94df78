//! The files of one revision of a Source.

use std::{
    collections::BTreeMap,
    ops::Bound::{Included, Unbounded},
};

use bytes::Bytes;
use chandler_core::digest::Digest;
use sha2::{Digest as _, Sha256};

use crate::SourceError;

/// The files of one revision of a Source. Clones share the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTree {
    pub revision: String,
    /// Regular files by their path relative to the root, with `/` between folders.
    pub files: BTreeMap<String, Bytes>,
}

impl AsRef<Self> for SourceTree {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl SourceTree {
    /// Returns the files below a folder, with paths relative to it. An empty path, `.` and `/` are the root.
    pub fn below(&self, path: &str) -> Result<Self, SourceError> {
        let missing = || SourceError::PathMissing { revision: self.revision.clone(), path: path.to_owned() };
        let segments: Vec<_> = path.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        if segments.contains(&"..") {
            return Err(missing());
        }
        if segments.is_empty() {
            return Ok(self.clone());
        }
        let folder = format!("{}/", segments.join("/"));
        let from = self.files.range::<str, _>((Included(folder.as_str()), Unbounded));
        let files: BTreeMap<_, _> = from
            .map_while(|(path, content)| Some((path.strip_prefix(&folder)?.to_owned(), content.clone())))
            .collect();
        if files.is_empty() { Err(missing()) } else { Ok(Self { revision: self.revision.clone(), files }) }
    }

    /// Returns paths and contents.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_ref()))
    }

    /// Returns a digest of paths and contents. It does not depend on the revision.
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        for (path, content) in &self.files {
            add(path.as_bytes());
            add(content);
        }
        Digest::from_sha256(&hash.finalize().into())
    }
}

/// Returns what to say about symbolic links that were left out of a tree. Empty if there were none.
pub(crate) fn link_remarks(links: &[String]) -> String {
    match links {
        [] => String::new(),
        [only] => format!("the symbolic link {only} is left out"),
        [first, ..] => format!("{} symbolic links are left out, the first is {first}", links.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(revision: &str, files: &[(&str, &'static str)]) -> SourceTree {
        let files =
            files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from_static(text.as_bytes())));
        SourceTree { revision: revision.to_owned(), files: files.collect() }
    }

    #[test]
    fn files_below_a_folder_are_relative_to_it() {
        let all =
            tree("c1", &[("a", "1"), ("app-b/x", "2"), ("app/x", "3"), ("app/y/z", "4"), ("app0", "5")]);
        assert_eq!(all.below("app").unwrap(), tree("c1", &[("x", "3"), ("y/z", "4")]));
        assert_eq!(all.below("./app//y/").unwrap(), tree("c1", &[("z", "4")]));
        for root in ["", ".", "/", "./"] {
            assert_eq!(all.below(root).unwrap(), all, "{root}");
        }
        for missing in ["ap", "b", "app/x", "../app", "app/.."] {
            let error = all.below(missing).unwrap_err();
            assert!(matches!(error, SourceError::PathMissing { .. }), "{missing}");
        }
    }

    #[test]
    fn left_out_links_are_remarked() {
        let links = ["a".to_owned(), "b".to_owned()];
        assert_eq!(link_remarks(&[]), "");
        assert_eq!(link_remarks(&links[..1]), "the symbolic link a is left out");
        assert_eq!(link_remarks(&links), "2 symbolic links are left out, the first is a");
    }

    #[test]
    fn the_digest_depends_on_paths_and_contents_only() {
        let one = tree("c1", &[("a", "b"), ("c", "d")]);
        assert_eq!(one.digest(), tree("c2", &[("a", "b"), ("c", "d")]).digest());
        for other in [&[("a", "b")][..], &[("a", "bc"), ("", "d")], &[("a", "b"), ("c", "e")]] {
            assert_ne!(one.digest(), tree("c1", other).digest(), "{other:?}");
        }
    }
}
