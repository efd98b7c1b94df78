//! What Sources fetch of their repository. Pure.

use std::fmt;

use chandler_api::extensions::{GitReference, OciReference, SourceSpec};
use chandler_core::{
    failure::Failure,
    source::{Origin, revision_digits},
};
use serde_json::{Value, json};

/// Number of characters of the id of a commit.
const COMMIT_LENGTH: usize = 40;
/// Number of characters of a digest, without its algorithm.
const DIGEST_LENGTH: usize = 64;

/// What a Source fetches of its repository, its registry or its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceReference {
    Git(Option<GitReference>),
    Oci(Option<OciReference>),
    Bucket { prefix: Option<String> },
}

impl SourceReference {
    pub fn of(spec: &SourceSpec) -> Result<Self, Failure> {
        Ok(match Origin::of(spec)? {
            Origin::Git(git) => Self::Git(git.reference.clone()),
            Origin::Oci(oci) => Self::Oci(oci.reference.clone()),
            Origin::Bucket(bucket) => Self::Bucket { prefix: bucket.prefix.clone() },
        })
    }

    /// Returns whether a commit or a digest is fetched.
    pub fn is_pinned(&self) -> bool {
        match self {
            Self::Git(reference) => reference.as_ref().is_some_and(|chosen| chosen.commit.is_some()),
            Self::Oci(reference) => reference.as_ref().is_some_and(|chosen| chosen.digest.is_some()),
            Self::Bucket { .. } => false,
        }
    }

    /// Returns the revision that a text names completely: the id of a commit, or a digest with or without its algorithm.
    pub(super) fn complete_revision(&self, text: &str) -> Option<String> {
        let digits = revision_digits(text);
        match self {
            Self::Git(_) => (text.len() == COMMIT_LENGTH).then(|| text.to_owned()),
            Self::Oci(_) => (digits.len() == DIGEST_LENGTH).then(|| format!("sha256:{digits}")),
            Self::Bucket { .. } => None,
        }
    }

    /// Returns the fields of the spec, as a merge patch, that pin a revision. A bucket has none.
    pub(super) fn pinned(&self, revision: &str) -> Value {
        match self {
            Self::Git(_) => {
                let reference = json!({"branch": null, "tag": null, "semver": null, "commit": revision});
                json!({"git": {"ref": reference}})
            }
            Self::Oci(_) => {
                let reference = json!({"tag": null, "semver": null, "digest": revision});
                json!({"oci": {"ref": reference}})
            }
            Self::Bucket { .. } => json!({}),
        }
    }

    /// Returns the fields of the spec, as a merge patch, that replace a pinned revision by this.
    pub(super) fn unpinned(&self) -> Value {
        let (origin, pin) = match self {
            Self::Git(_) => ("git", "commit"),
            Self::Oci(_) => ("oci", "digest"),
            Self::Bucket { .. } => return json!({}),
        };
        let mut reference = self.to_json();
        if let Some(fields) = reference.as_object_mut() {
            fields.insert(pin.to_owned(), Value::Null);
        }
        json!({origin: {"ref": reference}})
    }

    /// Returns `ref` as JSON.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Git(reference) => json!(reference),
            Self::Oci(reference) => json!(reference),
            Self::Bucket { .. } => Value::Null,
        }
    }

    /// Reads a `ref` of a Source of the same kind.
    pub(super) fn parse(&self, text: &str) -> Option<Self> {
        match self {
            Self::Git(_) => serde_json::from_str(text).ok().map(Self::Git),
            Self::Oci(_) => serde_json::from_str(text).ok().map(Self::Oci),
            Self::Bucket { .. } => None,
        }
    }
}

/// For example `branch main`.
impl fmt::Display for SourceReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, default) = match self {
            Self::Git(reference) => {
                let GitReference { branch, tag, semver, commit } = reference.clone().unwrap_or_default();
                let fields = vec![("branch", branch), ("tag", tag), ("semver", semver), ("commit", commit)];
                (fields, "default branch")
            }
            Self::Oci(reference) => {
                let OciReference { tag, semver, digest } = reference.clone().unwrap_or_default();
                (vec![("tag", tag), ("semver", semver), ("digest", digest)], "tag latest")
            }
            Self::Bucket { prefix } => (vec![("folder", prefix.clone())], "all objects"),
        };
        match fields.into_iter().find_map(|(kind, value)| Some((kind, value?))) {
            Some((kind, value)) => write!(f, "{kind} {value}"),
            None => f.write_str(default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_named_by_their_kind() {
        let bucket = json!({"provider": "S3", "endpoint": "https://s3.example", "name": "fleet"});
        let folder =
            json!({"provider": "S3", "endpoint": "https://s3.example", "name": "fleet", "prefix": "prod"});
        let rows = [
            (json!({"git": {"url": "u"}}), "default branch"),
            (json!({"git": {"url": "u", "ref": {"semver": "1.x"}}}), "semver 1.x"),
            (json!({"git": {"url": "u", "ref": {"commit": "c1"}}}), "commit c1"),
            (json!({"oci": {"url": "u"}}), "tag latest"),
            (json!({"oci": {"url": "u", "ref": {"digest": "sha256:00"}}}), "digest sha256:00"),
            (json!({"bucket": bucket}), "all objects"),
            (json!({"bucket": folder}), "folder prod"),
        ];
        for (spec, expected) in rows {
            let spec: SourceSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(SourceReference::of(&spec).unwrap().to_string(), expected);
        }
    }
}
