//! The keys that a server may have, in the format of the `known_hosts` file of OpenSSH.

use ring::hmac;
use russh::keys::{
    Algorithm, EcdsaCurve, HashAlg, PublicKey,
    ssh_key::{
        known_hosts::{Entry, HostPatterns, Marker},
        public::KeyData,
    },
};

/// The supported types of host keys, most preferred first.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
];

/// The keys of one server.
#[derive(Debug)]
pub(super) struct HostKeys {
    /// The name of the server in `known_hosts`.
    host: String,
    trusted: Vec<KeyData>,
    revoked: Vec<KeyData>,
}

impl HostKeys {
    /// Reads the keys of `host` from the text of a `known_hosts` file. Certificate authorities are not used.
    pub fn parse(text: &str, host: String) -> Result<Self, &'static str> {
        let (mut trusted, mut revoked) = (Vec::new(), Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let entry: Entry = fields.join(" ").parse().map_err(|_| {
                "known_hosts has a line that is not a host and its key; write it like `git.example ssh-ed25519 AAAA…`"
            })?;
            if !matches(entry.host_patterns(), &host) {
                continue;
            }
            let key = entry.public_key().key_data().clone();
            match entry.marker() {
                None => trusted.push(key),
                Some(Marker::Revoked) => revoked.push(key),
                Some(Marker::CertAuthority) => {}
            }
        }
        Ok(Self { host, trusted, revoked })
    }

    /// Returns the types of keys to ask the server for. The types of the trusted keys come first, so that a server with several
    /// keys offers one of those.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let is_trusted = |algorithm: &Algorithm| self.trusted.iter().any(|key| key.algorithm() == *algorithm);
        let mut algorithms = ALGORITHMS.to_vec();
        algorithms.sort_by_key(|algorithm| !is_trusted(algorithm));
        algorithms
    }

    /// Checks the key that the server offers. An error states its fingerprint, and what to do.
    pub fn check(&self, offered: &PublicKey) -> Result<(), String> {
        let (key, host) = (offered.key_data(), &self.host);
        let fingerprint = offered.fingerprint(HashAlg::Sha256);
        let offer = format!("it offers the {} key {fingerprint}", offered.algorithm());
        if self.revoked.contains(key) {
            return Err(format!("{offer}, which known_hosts of the Secret marks as revoked for {host}"));
        }
        if self.trusted.contains(key) {
            return Ok(());
        }
        if self.trusted.is_empty() {
            return Err(format!(
                "{offer}, and known_hosts of the Secret has no key for {host}. If the operator of the server confirms the \
                 fingerprint, add the key to known_hosts; `ssh-keyscan` prints it"
            ));
        }
        let known: Vec<_> =
            self.trusted.iter().map(|key| key.fingerprint(HashAlg::Sha256).to_string()).collect();
        Err(format!(
            "{offer}, but known_hosts of the Secret has {} for {host}. Either the key has changed, or another server \
             answers: change known_hosts only if the operator of the server confirms the fingerprint",
            known.join(", ")
        ))
    }
}

fn matches(patterns: &HostPatterns, host: &str) -> bool {
    match patterns {
        HostPatterns::HashedName { salt, hash } => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            hmac::verify(&key, host.as_bytes(), hash).is_ok()
        }
        HostPatterns::Patterns(patterns) => {
            let (negated, wanted): (Vec<&str>, Vec<&str>) =
                patterns.iter().map(String::as_str).partition(|pattern| pattern.starts_with('!'));
            wanted.iter().any(|pattern| matches_pattern(pattern, host))
                && !negated.iter().any(|pattern| matches_pattern(&pattern[1..], host))
        }
    }
}

/// Matches a pattern with `*` and `?`, regardless of case.
fn matches_pattern(pattern: &str, host: &str) -> bool {
    let (pattern, host) = (pattern.to_ascii_lowercase(), host.as_bytes());
    let pattern = pattern.as_bytes();
    // The last `*`, and the part of the host from which it is retried with one more character.
    let (mut at, mut position, mut star) = (0, 0, None);
    while position < host.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == host[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((star_at, matched)) = star else { return false };
                star = Some((star_at, matched + 1));
                (at, position) = (star_at + 1, matched + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const HASHED: &str = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=";

    fn keys(text: &str, host: &str) -> HostKeys {
        HostKeys::parse(text, host.to_owned()).unwrap()
    }

    fn check(text: &str, host: &str, offered: &str) -> Result<(), String> {
        keys(text, host).check(&offered.parse().unwrap())
    }

    #[test]
    fn keys_of_the_host_are_trusted() {
        let rows = [
            (format!("git.example {ED25519}"), "git.example", true),
            (
                format!("# git.example:22 SSH-2.0\n\n other,Git.Example\t{ED25519} a comment\n"),
                "git.example",
                true,
            ),
            (format!("git.example {ED25519}"), "[git.example]:2222", false),
            (format!("[git.example]:2222 {ED25519}"), "[git.example]:2222", true),
            (format!("*.example {ED25519}"), "git.example", true),
            (format!("*.example,!git.example {ED25519}"), "git.example", false),
            (format!("gi?.ex*ple {ED25519}"), "git.example", true),
            (format!("gi?.ex*pl {ED25519}"), "git.example", false),
            (format!("{HASHED} {ED25519}"), "example.com", true),
            (format!("{HASHED} {ED25519}"), "example.org", false),
            (format!("@cert-authority git.example {ED25519}"), "git.example", false),
            (format!("git.example {ED25519}\n@revoked * {ED25519}"), "git.example", false),
            (format!("git.example {OTHER}\ngit.example {ED25519}"), "git.example", true),
        ];
        for (text, host, trusted) in rows {
            assert_eq!(check(&text, host, ED25519).is_ok(), trusted, "{text} for {host}");
        }
        assert!(HostKeys::parse("git.example nonsense", "git.example".to_owned()).is_err());
    }

    #[test]
    fn refusals_state_the_fingerprint_and_what_to_do() {
        let offered: PublicKey = ED25519.parse().unwrap();
        let fingerprint = offered.fingerprint(HashAlg::Sha256).to_string();
        assert!(fingerprint.starts_with("SHA256:"));
        let unknown = check("", "git.example", ED25519).unwrap_err();
        assert!(
            unknown.contains(&fingerprint) && unknown.contains("has no key for git.example"),
            "{unknown}"
        );
        let changed = check(&format!("git.example {OTHER}"), "git.example", ED25519).unwrap_err();
        assert!(changed.contains(&fingerprint) && changed.contains("the key has changed"), "{changed}");
        let revoked = check(&format!("@revoked git.example {ED25519}"), "git.example", ED25519).unwrap_err();
        assert!(revoked.contains(&fingerprint) && revoked.contains("revoked"), "{revoked}");
    }

    #[test]
    fn known_types_of_keys_are_preferred() {
        assert_eq!(keys("", "git.example").algorithms(), ALGORITHMS);
        let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";
        let text = format!("git.example {ecdsa}");
        assert_eq!(keys(&text, "git.example").algorithms()[0], ALGORITHMS[1]);
    }
}
