//! Secrets in text: those that are known, and what looks like one. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use anyhow::Result;
use regex::Regex;
use serde_json::Value;

use super::redact::GONE;

/// Shorter texts are part of too many words.
const SHORTEST: usize = 6;

/// Longer ones are no common word.
const DISTINCT: usize = 16;

/// What looks like a secret, and what is put in its place.
const PATTERNS: [(&str, &str); 6] = [
    (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)", "REDACTED"),
    // The same, and certificates, as a kubeconfig holds them.
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

/// What is kept out of every text.
pub struct Withheld {
    texts: BTreeSet<String>,
    /// Names of objects: they stay, although a value may be called the same.
    names: BTreeSet<String>,
    patterns: Vec<(Regex, &'static str)>,
}

impl Withheld {
    pub fn new() -> Result<Self> {
        let patterns = PATTERNS.iter().map(|(pattern, instead)| Ok((Regex::new(pattern)?, *instead)));
        let patterns = patterns.collect::<Result<_>>()?;
        Ok(Self { texts: BTreeSet::new(), names: BTreeSet::new(), patterns })
    }

    pub fn name(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Whatever text is in it, at any depth.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.value(field)),
            _ => {}
        }
    }

    /// A text, the values in it if it is YAML, and its lines.
    pub fn text(&mut self, text: &str) {
        if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_saphyr::from_str::<Value>(text) {
            if inner["kind"] == "Config" {
                return self.kubeconfig(&inner);
            }
            self.value(&inner);
        }
        for line in std::iter::once(text).chain(text.lines()) {
            let value = line.split_once(": ").map_or(line, |(_, value)| value);
            for text in [line, value] {
                let text = text.trim().trim_matches(['"', '\'']);
                if text.len() >= SHORTEST {
                    self.texts.insert(text.to_owned());
                    self.texts.insert(escaped(text));
                }
            }
        }
    }

    /// Its addresses and names are no secrets, and part of many texts.
    fn kubeconfig(&mut self, config: &Value) {
        let users = config["users"].as_array().into_iter().flatten();
        for field in users.filter_map(|user| user["user"].as_object()).flat_map(serde_json::Map::values) {
            self.value(field);
        }
    }

    /// The text without secrets.
    pub fn clean(&self, text: &str) -> String {
        let mut clean = Cow::Borrowed(text);
        for (pattern, instead) in &self.patterns {
            if let Cow::Owned(changed) = pattern.replace_all(&clean, *instead) {
                clean = Cow::Owned(changed);
            }
        }
        // The longest first: a text may be part of another.
        let mut texts: Vec<_> = self.texts.difference(&self.names).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in texts {
            if clean.contains(text.as_str()) {
                clean = Cow::Owned(without(&clean, text));
            }
        }
        clean.into_owned()
    }
}

/// A text that could be a common word is taken out where it stands alone only.
fn without(text: &str, secret: &str) -> String {
    let common = secret.len() < DISTINCT && secret.chars().all(char::is_alphabetic);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let (before, after) = (&rest[..at], &rest[at + secret.len()..]);
        let inside = before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        clean.push_str(before);
        clean.push_str(if common && inside { secret } else { GONE });
        rest = after;
    }
    clean + rest
}

/// As it stands in JSON.
fn escaped(text: &str) -> String {
    Value::from(text).to_string().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CANARY: &str = "canary-7f3a";

    #[test]
    fn known_secrets_go_wherever_they_are() {
        let mut withheld = Withheld::new().unwrap();
        withheld.text(&format!("a: {{b: [\"{CANARY}\"]}}\n"));
        withheld.text("not: {{ yaml }}\nbut: canary in a line\n");
        withheld.value(&json!({"deep": ["canary \"quoted\"", 7, "hello"], "name": "fleet-one"}));
        withheld.name("fleet-one");
        for text in [
            format!("failed: bad {CANARY}, try again"),
            json!({"message": "not canary \"quoted\""}).to_string(),
            "the text canary in a line is wrong".to_owned(),
        ] {
            let clean = withheld.clean(&text);
            assert!(clean.contains("REDACTED") && !clean.contains("canary"), "{text}: {clean}");
        }
        withheld
            .text("kind: Config\nusers: [{user: {token: canary-token}}]\nclusters: [{name: production}]\n");
        withheld.text("Config");
        assert_eq!(withheld.clean("canary-token, Config"), "REDACTED, REDACTED");
        for kept in ["hello fleet-one", "b: a", "", "ConfigMap of production"] {
            assert_eq!(withheld.clean(kept), kept);
        }
    }

    #[test]
    fn what_looks_like_a_secret_goes() {
        let withheld = Withheld::new().unwrap();
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
            assert_eq!(withheld.clean(text), expected);
        }
    }
}
