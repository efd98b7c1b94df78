//! The name of an image in a registry.

use std::{fmt, str::FromStr};

use anyhow::{Error, Result, bail};

/// `REGISTRY/REPOSITORY:TAG`.
#[derive(Debug, PartialEq, Eq)]
pub struct Reference {
    pub host: String,
    pub repository: String,
    pub tag: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, repository, tag } = self;
        write!(f, "{host}/{repository}:{tag}")
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(host, rest)| {
            let (repository, tag) = rest.rsplit_once(':')?;
            Some((host, repository, tag))
        });
        match parts {
            Some((host, repository, tag)) if is_valid(host, repository, tag) => {
                Ok(Self { host: host.to_owned(), repository: repository.to_owned(), tag: tag.to_owned() })
            }
            _ => bail!("{text} is not a reference such as registry.example/team/chandler:v1.2.3"),
        }
    }
}

fn is_valid(host: &str, repository: &str, tag: &str) -> bool {
    let is_name = |text: &str, extra: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    is_name(host, ".-:[]") && is_name(repository, "/._-") && is_name(tag, "._-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_a_registry_and_a_tag() {
        let parsed: Reference = "127.0.0.1:5000/team/chandler:v1.2.3-dev".parse().unwrap();
        assert_eq!((parsed.host.as_str(), parsed.repository.as_str()), ("127.0.0.1:5000", "team/chandler"));
        assert_eq!(parsed.to_string(), "127.0.0.1:5000/team/chandler:v1.2.3-dev");
        for invalid in
            ["chandler:v1", "r.example/chandler", "r.example/a b:v1", "r.example/c@sha256:ab", "r.example/c:"]
        {
            assert!(invalid.parse::<Reference>().is_err(), "{invalid}");
        }
    }
}
