//! How a registry wants its clients to authenticate.

use anyhow::{Context as _, Result, bail};
use reqwest::Url;

/// What the header `WWW-Authenticate` asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password with every request.
    Basic,
    /// A token from this URL.
    Bearer(Url),
}

impl Challenge {
    /// Parses the header. A token is for pushing to `repository`, whatever scope the header names: some registries name none.
    pub fn parse(header: &str, repository: &str) -> Result<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Ok(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            bail!("the registry requires the unknown authentication `{scheme}`");
        }
        let realm = parameter(rest, "realm").context("the registry does not name where to get a token")?;
        let mut url: Url =
            realm.parse().with_context(|| format!("the registry's realm {realm} is not a URL"))?;
        let mut query = url.query_pairs_mut();
        if let Some(service) = parameter(rest, "service") {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &format!("repository:{repository}:pull,push"));
        drop(query);
        Ok(Self::Bearer(url))
    }
}

/// Returns the value of `name="value"`.
fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    let start = parameters.find(&format!("{name}=\""))? + name.len() + 2;
    parameters[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let parse = |header| Challenge::parse(header, "team/chandler").ok();
        assert_eq!(parse("Basic realm=\"registry\""), Some(Challenge::Basic));
        let bearer = parse(
            "Bearer realm=\"https://r.example/token\",service=\"r.example\",scope=\"repository:x:pull\"",
        );
        let url =
            "https://r.example/token?service=r.example&scope=repository%3Ateam%2Fchandler%3Apull%2Cpush";
        assert_eq!(bearer, Some(Challenge::Bearer(url.parse().unwrap())));
        for invalid in ["", "Negotiate", "Bearer", "Bearer realm=\"token\""] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }
}
