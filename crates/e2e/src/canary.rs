//! No secret is told to anyone. Every test is held to it without asking: what its manager tells is looked through when
//! the manager ends, and what is left of its world when the world does.

use std::{collections::BTreeSet, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// In every secret that a test makes up, in whatever case.
const MARK: &str = "canary";
/// The same in the data of a Secret.
const ENCODED_MARKS: [&str; 2] = ["Y2FuYXJ5", "Q0FOQVJZ"];
/// Shorter ones are part of too many words.
const SHORTEST: usize = 12;
/// Enough of a key to know it by.
const PIECE: usize = 48;

/// What nobody may be told.
#[derive(Clone, Default)]
pub struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Those of a kubeconfig: tokens, passwords and keys.
    pub fn of_kubeconfig(text: &str) -> Self {
        let mut secrets = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.trim().trim_start_matches("- ").split_once(": ") else { continue };
            match name {
                "token" | "password" => secrets.word(value.trim_matches(['"', '\''])),
                "client-key-data" => secrets.key(value.trim_matches(['"', '\''])),
                _ => {}
            }
        }
        secrets
    }

    /// Those of the Secrets in a list.
    pub fn of_objects(list: &Value) -> Self {
        let mut secrets = Self::default();
        let items = list["items"].as_array().into_iter().flatten();
        for value in items.filter_map(|secret| secret["data"].as_object()).flat_map(serde_json::Map::values) {
            let Some(bytes) = value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            if text.contains("PRIVATE KEY-----") {
                secrets.key(&BASE64_STANDARD.encode(&bytes));
            } else if text.contains("apiVersion:") {
                secrets.0.append(&mut Self::of_kubeconfig(&text).0);
            } else if !text.contains("-----BEGIN") {
                secrets.word(&text);
            }
        }
        secrets
    }

    pub fn extend(&mut self, further: Self) {
        self.0.extend(further.0);
    }

    fn word(&mut self, text: &str) {
        if text.len() >= SHORTEST && !text.contains(char::is_whitespace) {
            self.0.insert(text.to_owned());
            self.0.insert(BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned());
        }
    }

    /// A private key: as it stands in a kubeconfig, and as PEM.
    fn key(&mut self, encoded: &str) {
        let middle = encoded.len() / 2;
        self.0.extend(encoded.get(middle..middle + PIECE).map(str::to_owned));
        let pem = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        let line = String::from_utf8_lossy(&pem).lines().nth(1).map(str::to_owned);
        self.0.extend(line.filter(|line| line.len() >= PIECE));
    }

    /// Where a text tells a secret: what is around it.
    pub fn told_in(&self, text: &str) -> Option<String> {
        let low = text.to_lowercase();
        if let Some(at) = low.find(MARK) {
            return Some(around(&low, at));
        }
        let mut known = self.0.iter().map(String::as_str).chain(ENCODED_MARKS);
        known.find_map(|secret| Some(around(text, text.find(secret)?)))
    }
}

fn around(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    text[line..end].chars().take(2000).collect()
}

/// What there is to look through: where it was found, and its text.
pub type Told = Vec<(String, String)>;

/// Fails the test if one of these tells a secret. One that has failed already is left to say why.
pub fn check(secrets: &Secrets, told: &[(String, String)]) {
    if std::thread::panicking() {
        return;
    }
    let leaks: Vec<_> =
        told.iter().filter_map(|(place, text)| Some((place, secrets.told_in(text)?))).collect();
    assert!(leaks.is_empty(), "secrets are told: {leaks:#?}");
}

/// Arguments and environment of a process; nothing if it is gone.
pub fn process(pid: u32) -> Told {
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        (format!("{name} of process {pid}"), String::from_utf8_lossy(&bytes).into_owned())
    };
    vec![read("cmdline"), read("environ")]
}

/// Every file below a folder.
pub fn files(folder: &Path) -> Told {
    let mut told = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                told.push(file(&path));
            }
        }
    }
    told
}

fn file(path: &Path) -> (String, String) {
    let bytes = std::fs::read(path).unwrap_or_default();
    (path.to_string_lossy().into_owned(), String::from_utf8_lossy(&bytes).into_owned())
}

/// Events as they are, and the status of everything else: what a spec holds is what a user has put there.
pub fn objects(list: &Value) -> Told {
    let items = list["items"].as_array().into_iter().flatten();
    let told = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let text = if kind == "Event" { object.to_string() } else { object["status"].to_string() };
        (format!("{kind} {name}"), text)
    };
    items.map(told).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_found_however_they_are_written() {
        let key = BASE64_STANDARD.encode(format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
            "ab1+".repeat(16)
        ));
        let kubeconfig = format!(
            "apiVersion: v1\nusers:\n- user:\n    token: tok-0123456789\n    client-key-data: {key}\n"
        );
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let list = json!({"items": [
            {"data": {"value": encoded(&kubeconfig), "password": encoded("correct-horse-battery"), "short": encoded("user")}},
            {"data": {"ca.crt": encoded("-----BEGIN CERTIFICATE-----\nMIIB\n")}},
        ]});
        let secrets = Secrets::of_objects(&list);
        for told in [
            "a Canary in a log".to_owned(),
            encoded("canary-1"),
            "token tok-0123456789".to_owned(),
            "correct-horse-battery".to_owned(),
            encoded("correct-horse-battery"),
            format!("key: {key}"),
            "ab1+".repeat(16),
        ] {
            assert!(secrets.told_in(&told).is_some(), "{told}");
        }
        assert_eq!(secrets.told_in("user MIIB -----BEGIN CERTIFICATE-----"), None);
    }
}
