//! The prefix of source URLs in a policy rule: all sources, those of a host, or those below a path.

use std::str::FromStr;

use reqwest::Url;

use crate::access::{authority, canonical};

/// The sources that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourcePrefix {
    All,
    Below(SourceLocation),
}

/// The normalized URL of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    scheme: String,
    host: String,
    path: Vec<String>,
}

impl SourceLocation {
    /// Creates the location from a base URL. The path of a registry starts with the protocol version `v2`, which is skipped.
    pub fn from_base_url(scheme: &str, base_url: &Url) -> Self {
        let skipped = usize::from(scheme == "oci");
        Self::new(scheme, base_url, segments(base_url).skip(skipped))
    }

    fn new(scheme: &str, url: &Url, path: impl Iterator<Item = String>) -> Self {
        let host = canonical(&authority(url).replace(".:", ":")).trim_end_matches('.').to_owned();
        // On Docker Hub, the namespace `library` can be omitted.
        let is_implied = |part: &String| host == "docker.io" && part == "library";
        let path = path.skip_while(is_implied).collect();
        Self { scheme: scheme.to_owned(), host, path }
    }
}

fn segments(url: &Url) -> impl Iterator<Item = String> {
    url.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).map(str::to_owned)
}

impl SourcePrefix {
    /// Returns how specific the prefix is for a location, or `None` if it does not match. A longer path is more specific.
    pub fn specificity(&self, location: &SourceLocation) -> Option<usize> {
        match self {
            Self::All => Some(0),
            Self::Below(SourceLocation { scheme, host, path }) => {
                let matches =
                    *scheme == location.scheme && *host == location.host && location.path.starts_with(path);
                matches.then_some(1 + path.len())
            }
        }
    }
}

/// A text is not a source prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither * nor the beginning of an oci:// or https:// address")]
pub struct SourcePrefixError(String);

impl FromStr for SourcePrefix {
    type Err = SourcePrefixError;

    fn from_str(text: &str) -> Result<Self, SourcePrefixError> {
        if text == "*" {
            return Ok(Self::All);
        }
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let url = Url::parse(&format!("https://{rest}")).ok();
        let plain = |url: &Url| {
            url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        match url.filter(|url| matches!(scheme, "oci" | "https") && url.has_host() && plain(url)) {
            Some(url) => Ok(Self::Below(SourceLocation::new(scheme, &url, segments(&url)))),
            None => Err(SourcePrefixError(text.to_owned())),
        }
    }
}
