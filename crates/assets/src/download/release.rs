//! The files of a release of Chandler.

use std::env::consts::ARCH;

use super::publishers::architecture;

/// A release of Chandler on GitHub, for this machine.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    /// Owner and name of the repository, separated by a slash.
    repository: String,
    pub(super) tag: String,
    architecture: &'static str,
}

impl Release {
    /// Returns the release of a tag, if releases contain programs for this machine. `remote` is a URL of the repository.
    pub(crate) fn of(remote: &str, tag: &str) -> Option<Self> {
        // Releases are built for this architecture only.
        let architecture = architecture(ARCH).filter(|architecture| *architecture == "amd64")?;
        Some(Self { repository: repository(remote)?.to_owned(), tag: tag.to_owned(), architecture })
    }

    /// Returns the paths of its archives of programs.
    pub(super) fn archives(&self) -> [String; 2] {
        ["chandler", "chandler-sandbox"]
            .map(|name| self.path(&format!("{name}-linux-{}.tar.gz", self.architecture)))
    }

    pub(super) fn path(&self, file: &str) -> String {
        format!("/{}/releases/download/{}/{file}", self.repository, self.tag)
    }

    /// Returns owner and name of the repository, separated by a slash.
    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    pub(super) fn version(&self) -> &str {
        self.tag.trim_start_matches('v')
    }
}

/// Returns owner and name of a repository on GitHub from its URL for https or ssh.
fn repository(remote: &str) -> Option<&str> {
    let path = ["https://github.com/", "ssh://git@github.com/", "git@github.com:"]
        .into_iter()
        .find_map(|prefix| remote.strip_prefix(prefix))?;
    let path = path.trim_end_matches('/').trim_end_matches(".git");
    let (owner, name) = path.split_once('/')?;
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (is_name(owner) && is_name(name)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_on_github_are_recognized() {
        for (remote, expected) in [
            ("https://github.com/owner/chandler", Some("owner/chandler")),
            ("https://github.com/owner/chandler.git", Some("owner/chandler")),
            ("git@github.com:owner/chandler.git", Some("owner/chandler")),
            ("ssh://git@github.com/owner/chandler/", Some("owner/chandler")),
            ("https://example.com/owner/chandler", None),
            ("https://github.com/owner", None),
            ("https://github.com/owner/a/b", None),
            ("https://github.com/owner/a?b", None),
            ("", None),
        ] {
            assert_eq!(repository(remote), expected, "{remote}");
        }
    }
}
