//! A part of the world of sources: all, those of a host, or those below a path of it.

use std::str::FromStr;

use reqwest::Url;

use crate::access::{authority, canonical};

/// What is meant by a rule. The more it says, the closer it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourcePrefix {
    All,
    Below(Place),
}

/// Where a source is, however it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    scheme: String,
    host: String,
    path: Vec<String>,
}

impl Place {
    /// The place of a repository, whose address in a registry begins with the version of the protocol.
    pub fn of_home(scheme: &str, home: &Url) -> Self {
        let protocol = usize::from(scheme == "oci");
        Self::new(scheme, home, segments(home).skip(protocol))
    }

    fn new(scheme: &str, url: &Url, path: impl Iterator<Item = String>) -> Self {
        let host = canonical(&authority(url).replace(".:", ":")).trim_end_matches('.').to_owned();
        // A chart in Docker's own registry may be written without the folder it is in.
        let is_implied = |part: &String| host == "docker.io" && part == "library";
        let path = path.skip_while(is_implied).collect();
        Self { scheme: scheme.to_owned(), host, path }
    }
}

fn segments(url: &Url) -> impl Iterator<Item = String> {
    url.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).map(str::to_owned)
}

impl SourcePrefix {
    /// How much it says about a place; None: it is not about it.
    pub fn closeness(&self, place: &Place) -> Option<usize> {
        match self {
            Self::All => Some(0),
            Self::Below(Place { scheme, host, path }) => {
                let same = *scheme == place.scheme && *host == place.host && place.path.starts_with(path);
                same.then_some(1 + path.len())
            }
        }
    }
}

/// A text that names no sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither * nor the beginning of an oci:// or https:// address")]
pub struct BadSource(String);

impl FromStr for SourcePrefix {
    type Err = BadSource;

    fn from_str(text: &str) -> Result<Self, BadSource> {
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
            Some(url) => Ok(Self::Below(Place::new(scheme, &url, segments(&url)))),
            None => Err(BadSource(text.to_owned())),
        }
    }
}
