//! The URLs of repositories.

use reqwest::Url;

use super::ssh::SshAddress;
use crate::{SourceError, http::redacted};

pub(super) const SSH: &str = "ssh";
const HTTPS: &str = "https";

/// Parses the URL of a repository: https without a login, or ssh with a user.
pub(super) fn parse(text: &str) -> Result<Url, SourceError> {
    if let Some(url) = from_scp(text) {
        let reason = format!("write it as {url}");
        return Err(SourceError::InvalidGitUrl { url: text.to_owned(), reason });
    }
    let Ok(url) = text.parse::<Url>() else {
        let reason = "write https://host/path or ssh://user@host/path".to_owned();
        return Err(SourceError::InvalidGitUrl { url: "spec.git.url".to_owned(), reason });
    };
    check(&url).map_err(|reason| {
        // Without a host, a password is not where `redacted` expects it.
        let url = if url.has_host() { redacted(&url) } else { "spec.git.url".to_owned() };
        SourceError::InvalidGitUrl { url, reason: reason.to_owned() }
    })?;
    Ok(url)
}

fn check(url: &Url) -> Result<(), &'static str> {
    let has_login = !url.username().is_empty() || url.password().is_some();
    match url.scheme() {
        SSH => SshAddress::parse(url).map(drop),
        HTTPS if has_login => {
            Err("it must not contain a user name or password: write them to the Secret of spec.credentials")
        }
        HTTPS if url.host_str().is_some() => Ok(()),
        _ => Err("it must begin with https:// or ssh:// and name a host"),
    }
}

/// Returns the URL that an address such as `git@host:path` stands for. `None` if it is not such an address.
fn from_scp(text: &str) -> Option<String> {
    let (host, path) = text.split_once(':')?;
    let (user, host) = host.rsplit_once('@').unwrap_or(("git", host));
    if path.starts_with("//")
        || path.contains('@')
        || host.is_empty()
        || host.contains('/')
        || user.contains('/')
    {
        return None;
    }
    let path = path.trim_start_matches('/');
    Some(format!("ssh://{user}@{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme() {
        for url in ["https://git.example/a.git", "https://git.example:8443/a", "ssh://git@git.example:2222/a"]
        {
            assert_eq!(parse(url).unwrap().as_str(), url);
        }
        let rows = [
            ("git@git.example:fleet/a.git", "write it as ssh://git@git.example/fleet/a.git"),
            ("git.example:/srv/a.git", "write it as ssh://git@git.example/srv/a.git"),
            ("http://git.example/a", "must begin with https:// or ssh://"),
            ("file:///srv/a", "must begin with https:// or ssh://"),
            ("git:canary@git.example/a", "must begin with https:// or ssh://"),
            ("https:user:canary@git.example/a", "must not contain a user name or password"),
            ("/srv/a", "write https://host/path or ssh://user@host/path"),
            ("ssh://git@git.example:fleet/a", "write https://host/path or ssh://user@host/path"),
            ("https://git:canary@git.example/a", "must not contain a user name or password"),
            ("ssh://git:canary@git.example/a", "must not contain a password"),
            ("ssh://git.example/a", "must name the user"),
        ];
        for (url, expected) in rows {
            let message = parse(url).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains("canary"), "{url}: {message}");
        }
    }
}
