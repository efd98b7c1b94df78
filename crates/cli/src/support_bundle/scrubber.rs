//! Removes known secrets, and text that looks like a secret, from text. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use anyhow::Result;
use regex::Regex;
use serde_json::Value;

use super::redact::REDACTED;

/// Shorter values are ignored, because they match too much.
const MIN_LENGTH: usize = 6;

/// Shorter alphabetic values may be common words, and are replaced only as whole words.
const MIN_DISTINCT_LENGTH: usize = 16;

/// Patterns of secrets and their replacements.
const PATTERNS: [(&str, &str); 6] = [
    (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)", "REDACTED"),
    // Base64-encoded keys and certificates, as in a kubeconfig.
    (r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+", "REDACTED"),
    (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?", "REDACTED"),
    (r"\b([Bb]earer|[Bb]asic)\s+[A-Za-z0-9._~+/=-]{8,}", "$1 REDACTED"),
    (r"://[^/\s\x22@]+@", "://REDACTED@"),
    (
        r#"(?x)\b( (?:[A-Za-z0-9]+[_-])* (?:[Pp]assword|[Pp]asswd|[Tt]oken|[Aa]pi[_-]?[Kk]ey|[Pp]rivate[_-]?[Kk]ey) )
           ( \\?["']? \s* [=:] \s* \\?["']? ) [^\s"',;&{}\[\]\\]+"#,
        "${1}${2}REDACTED",
    ),
];

/// Removes secrets from text.
pub struct SecretScrubber {
    secrets: BTreeSet<String>,
    /// Names of objects, which are not removed even if they equal a secret.
    names: BTreeSet<String>,
    patterns: Vec<(Regex, &'static str)>,
}

impl SecretScrubber {
    pub fn new() -> Result<Self> {
        let patterns = PATTERNS.iter().map(|(pattern, replacement)| Ok((Regex::new(pattern)?, *replacement)));
        let patterns = patterns.collect::<Result<_>>()?;
        Ok(Self { secrets: BTreeSet::new(), names: BTreeSet::new(), patterns })
    }

    /// Adds the name of an object, which is not removed.
    pub fn add_name(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Adds all strings in a value, at any depth.
    pub fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_value(field)),
            _ => {}
        }
    }

    /// Adds a text, its lines, and its values if it is YAML.
    pub fn add_text(&mut self, text: &str) {
        if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_saphyr::from_str::<Value>(text) {
            if inner["kind"] == "Config" {
                return self.add_kubeconfig(&inner);
            }
            self.add_value(&inner);
        }
        for line in std::iter::once(text).chain(text.lines()) {
            let value = line.split_once(": ").map_or(line, |(_, value)| value);
            for text in [line, value] {
                let text = text.trim().trim_matches(['"', '\'']);
                if text.len() >= MIN_LENGTH {
                    self.secrets.insert(text.to_owned());
                    self.secrets.insert(json_escaped(text));
                }
            }
        }
    }

    /// Adds only the users and the passwords of proxies. Addresses and names in a kubeconfig are not secret and occur in
    /// many texts.
    fn add_kubeconfig(&mut self, config: &Value) {
        let users = config["users"].as_array().into_iter().flatten();
        for field in users.filter_map(|user| user["user"].as_object()).flat_map(serde_json::Map::values) {
            self.add_value(field);
        }
        let clusters = config["clusters"].as_array().into_iter().flatten();
        let proxies = clusters.filter_map(|cluster| cluster["cluster"]["proxy-url"].as_str());
        for (login, _) in proxies.filter_map(|url| url.split_once("://")?.1.rsplit_once('@')) {
            self.add_text(login.split_once(':').map_or(login, |(_, password)| password));
        }
    }

    /// Returns the text without secrets.
    pub fn scrub(&self, text: &str) -> String {
        let mut clean = Cow::Borrowed(text);
        for (pattern, replacement) in &self.patterns {
            if let Cow::Owned(changed) = pattern.replace_all(&clean, *replacement) {
                clean = Cow::Owned(changed);
            }
        }
        // Longest first, because a secret may be part of another.
        let mut secrets: Vec<_> = self.secrets.difference(&self.names).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            if clean.contains(secret.as_str()) {
                clean = Cow::Owned(replace_secret(&clean, secret));
            }
        }
        clean.into_owned()
    }
}

/// Replaces a secret. A secret that may be a common word is replaced only as a whole word.
fn replace_secret(text: &str, secret: &str) -> String {
    let is_word = secret.len() < MIN_DISTINCT_LENGTH && secret.chars().all(char::is_alphabetic);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let (before, after) = (&rest[..at], &rest[at + secret.len()..]);
        let is_part = before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        clean.push_str(before);
        clean.push_str(if is_word && is_part { secret } else { REDACTED });
        rest = after;
    }
    clean + rest
}

/// Returns the text as escaped in JSON.
fn json_escaped(text: &str) -> String {
    Value::from(text).to_string().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CANARY: &str = "canary-7f3a";

    #[test]
    fn known_secrets_are_removed() {
        let mut scrubber = SecretScrubber::new().unwrap();
        scrubber.add_text(&format!("a: {{b: [\"{CANARY}\"]}}\n"));
        scrubber.add_text("not: {{ yaml }}\nbut: canary in a line\n");
        scrubber.add_value(&json!({"deep": ["canary \"quoted\"", 7, "hello"], "name": "fleet-one"}));
        scrubber.add_name("fleet-one");
        for text in [
            format!("failed: bad {CANARY}, try again"),
            json!({"message": "not canary \"quoted\""}).to_string(),
            "the text canary in a line is wrong".to_owned(),
        ] {
            let clean = scrubber.scrub(&text);
            assert!(clean.contains("REDACTED") && !clean.contains("canary"), "{text}: {clean}");
        }
        scrubber.add_text(
            "kind: Config\nusers: [{user: {token: canary-token}}]\n\
             clusters: [{name: production, cluster: {proxy-url: 'http://proxy-user:canary-proxy@production:3128'}}]\n",
        );
        scrubber.add_text("Config");
        assert_eq!(scrubber.scrub("canary-token, canary-proxy, Config"), "REDACTED, REDACTED, REDACTED");
        for kept in ["hello fleet-one", "b: a", "", "ConfigMap of production"] {
            assert_eq!(scrubber.scrub(kept), kept);
        }
    }

    #[test]
    fn text_that_looks_like_a_secret_is_removed() {
        let scrubber = SecretScrubber::new().unwrap();
        for (text, clean) in [
            ("https://user:canary@host/x and oci://canary@y", "https://REDACTED@host/x and oci://REDACTED@y"),
            ("Authorization: Bearer canary.canary", "Authorization: Bearer REDACTED"),
            ("authorization: basic Y2FuYXJ5OmNhbmFyeQ==", "authorization: basic REDACTED"),
            ("--password=canary next", "--password=REDACTED next"),
            ("{\"token\": \"canary\"}", "{\"token\": \"REDACTED\"}"),
            ("{\"text\": \"db_password: canary\\nx\"}", "{\"text\": \"db_password: REDACTED\\nx\"}"),
            ("client-key-data: LS0tLS1CRUdJTiBQUklWQVRF", "client-key-data: REDACTED"),
            ("eyJhbGciOiJSUzI1NiJ9.eyJjYW5hcnki.c2ln seen", "REDACTED seen"),
            ("a -----BEGIN RSA PRIVATE KEY-----\ncanary\n-----END RSA PRIVATE KEY----- b", "a REDACTED b"),
            ("cut off -----BEGIN PRIVATE KEY-----\\ncanary", "cut off REDACTED"),
            ("\"credentials\": {\"secret\": {\"name\": \"login\"}, \"key\": \"token\"}", ""),
            ("key password of Secret fleet/login does not exist", ""),
        ] {
            let expected = if clean.is_empty() { text } else { clean };
            assert_eq!(scrubber.scrub(text), expected);
        }
    }
}
