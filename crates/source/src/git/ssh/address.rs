//! The parts of an `ssh://` URL.

use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;
use reqwest::Url;

const DEFAULT_PORT: u16 = 22;

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::git) struct SshAddress {
    pub user: String,
    /// Host name or address, in lower case and without brackets.
    pub host: String,
    pub port: u16,
    /// Path of the repository on the server. It begins with `/` or `~`.
    pub path: String,
}

impl SshAddress {
    /// Parses a URL. An error states what is wrong with it.
    pub fn parse(url: &Url) -> Result<Self, &'static str> {
        if url.password().is_some() {
            return Err("it must not contain a password: write the key to the Secret of spec.credentials");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it must not contain ? or #; write them as %3F and %23");
        }
        let user = url.username();
        if user.is_empty() || !user.chars().all(is_name_character) {
            return Err("it must name the user, such as ssh://git@host/path");
        }
        let host = host(url.host_str().unwrap_or_default()).ok_or("it must name a host")?;
        let path = percent_decode_str(url.path()).decode_utf8().map_err(|_| "its path is not UTF-8")?;
        if path.trim_matches('/').is_empty() || path.contains(char::is_control) {
            return Err("it must name the path of a repository");
        }
        // A path below the home folder of a user, as Git writes it.
        let path = if path.starts_with("/~") { &path[1..] } else { &*path };
        let port = url.port().unwrap_or(DEFAULT_PORT);
        Ok(Self { user: user.to_owned(), host, port, path: path.to_owned() })
    }

    /// Returns the name of the server in `known_hosts`.
    pub fn known_host(&self) -> String {
        let Self { host, port, .. } = self;
        if *port == DEFAULT_PORT { host.clone() } else { format!("[{host}]:{port}") }
    }

    /// Returns the command that serves the repository. The server may pass it to a shell, so the path is quoted as Git does.
    pub fn command(&self) -> String {
        let quoted = self.path.replace('\'', r"'\''").replace('!', r"'\!'");
        format!("git-upload-pack '{quoted}'")
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_')
}

fn host(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().ok().map(|address| address.to_string());
    }
    let is_name = !text.is_empty() && text.chars().all(is_name_character);
    is_name.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<SshAddress, &'static str> {
        SshAddress::parse(&url.parse().unwrap())
    }

    #[test]
    fn urls_have_a_user_a_host_and_a_path() {
        let address = parse("ssh://git@Git.Example/fleet/clusters.git").unwrap();
        assert_eq!((&*address.user, &*address.known_host()), ("git", "git.example"));
        assert_eq!(address.command(), "git-upload-pack '/fleet/clusters.git'");
        let other = parse("ssh://anna@git.example:2222/~anna/a%20b").unwrap();
        assert_eq!((other.port, &*other.known_host()), (2222, "[git.example]:2222"));
        assert_eq!(other.command(), "git-upload-pack '~anna/a b'");
        assert_eq!(parse("ssh://git@[::1]/a").unwrap().known_host(), "::1");
        assert_eq!(parse("ssh://git@[0:0::1]:23/a").unwrap().known_host(), "[::1]:23");
        let refused = [
            "ssh://git.example/a",
            "ssh://git:canary@git.example/a",
            "ssh://git@git.example",
            "ssh://git@git.example/",
            "ssh://git@/a",
            "ssh://git@git.example/a?b",
            "ssh://git@git.example/a#b",
            "ssh://git@git%2Eexample/a",
            "ssh://git%20x@git.example/a",
            "ssh://git@git.example/a%0Ab",
            "ssh://git@git.example/a%FF",
        ];
        for url in refused {
            // Some are no URLs at all.
            assert!(url.parse::<Url>().is_err() || parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        let address = parse("ssh://git@git.example/a'; rm -rf !x'").unwrap();
        assert_eq!(address.command(), r"git-upload-pack '/a'\''; rm -rf '\!'x'\'''");
    }
}
