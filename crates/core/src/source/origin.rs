//! Where the files of a Source come from.

use chandler_api::extensions::{Bucket, GitRepository, OciArtifact, SourceSpec};

use crate::failure::{Category, Failure};

/// Where the files of a Source come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    Git(&'a GitRepository),
    Oci(&'a OciArtifact),
    Bucket(&'a Bucket),
}

impl<'a> Origin<'a> {
    /// Returns the origin that the spec names. The API server accepts only specs with exactly one.
    pub fn of(spec: &'a SourceSpec) -> Result<Self, Failure> {
        match (&spec.git, &spec.oci, &spec.bucket) {
            (Some(git), None, None) => Ok(Self::Git(git)),
            (None, Some(oci), None) => Ok(Self::Oci(oci)),
            (None, None, Some(bucket)) => Ok(Self::Bucket(bucket)),
            _ => {
                let why = "exactly one of spec.git, spec.oci, spec.bucket of the Source must be set";
                Err(Failure::new(Category::InvalidSpec, why))
            }
        }
    }

    pub fn url(self) -> String {
        match self {
            Self::Git(git) => git.url.clone(),
            Self::Oci(oci) => oci.url.clone(),
            Self::Bucket(bucket) => format!("{}/{}", bucket.endpoint.trim_end_matches('/'), bucket.name),
        }
    }

    /// Returns the last part of the address, which is the same in all spellings of it: with another protocol,
    /// host name, user or prefix of the path. Other repositories may have it, too.
    pub fn repository_name(self) -> String {
        let url = self.url().to_lowercase();
        let path = url.trim_end_matches('/').trim_end_matches(".git");
        path.rsplit(['/', ':']).next().unwrap_or_default().to_owned()
    }

    /// Returns whether the owner of the Source has chosen one revision, so that no other tag may be used.
    pub fn is_pinned(self) -> bool {
        match self {
            Self::Git(git) => {
                git.reference.as_ref().is_some_and(|chosen| chosen.commit.is_some() || chosen.tag.is_some())
            }
            Self::Oci(oci) => {
                oci.reference.as_ref().is_some_and(|chosen| chosen.digest.is_some() || chosen.tag.is_some())
            }
            Self::Bucket(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: Value) -> SourceSpec {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_source_has_one_origin() {
        let (git, oci) = (json!({"url": "https://git.example/a"}), json!({"url": "oci://r.example/a"}));
        assert_eq!(Origin::of(&spec(json!({"git": git}))).unwrap().url(), "https://git.example/a");
        assert_eq!(Origin::of(&spec(json!({"oci": oci}))).unwrap().url(), "oci://r.example/a");
        let bucket = json!({"provider": "S3", "endpoint": "https://s3.example/", "name": "fleet"});
        assert_eq!(Origin::of(&spec(json!({"bucket": bucket}))).unwrap().url(), "https://s3.example/fleet");
        for invalid in [json!({}), json!({"git": git, "oci": oci}), json!({"git": git, "bucket": bucket})] {
            assert_eq!(Origin::of(&spec(invalid)).unwrap_err().category, Category::InvalidSpec);
        }
    }

    #[test]
    fn a_repository_has_the_same_name_in_all_spellings() {
        let name = |url: &str| Origin::of(&spec(json!({"git": {"url": url}}))).unwrap().repository_name();
        let spellings = [
            "https://git.example/team/fleet",
            "https://git.example/Team/Fleet.git/",
            "https://user@git.example:8443//team/fleet.git",
            "ssh://git@other.example/team/fleet",
            "git@git.example:team/fleet.git",
            "git@git.example:fleet",
            "https://git.example/team/_git/fleet",
        ];
        for url in spellings {
            assert_eq!(name(url), "fleet", "{url}");
        }
        assert_ne!(name("https://git.example/team/apps"), name(spellings[0]));
    }

    #[test]
    fn commits_digests_and_tags_pin_a_source() {
        let rows = [
            (json!({"git": {"url": "u"}}), false),
            (json!({"git": {"url": "u", "ref": {"branch": "main"}}}), false),
            (json!({"git": {"url": "u", "ref": {"tag": "v1"}}}), true),
            (json!({"git": {"url": "u", "ref": {"commit": "c"}}}), true),
            (json!({"oci": {"url": "u"}}), false),
            (json!({"oci": {"url": "u", "ref": {"semver": "1.x"}}}), false),
            (json!({"oci": {"url": "u", "ref": {"tag": "v1"}}}), true),
            (json!({"oci": {"url": "u", "ref": {"digest": "d"}}}), true),
        ];
        for (fields, expected) in rows {
            assert_eq!(Origin::of(&spec(fields.clone())).unwrap().is_pinned(), expected, "{fields}");
        }
    }
}
