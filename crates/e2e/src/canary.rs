//! Detects leaked secrets. Every test is checked automatically: the output of its manager when the manager stops, and
//! objects, logs and files when the test ends.

use std::{collections::BTreeSet, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// Every secret that a test invents contains this marker, in any letter case.
const MARKER: &str = "canary";
/// The marker as it appears in the data of a Secret.
const ENCODED_MARKERS: [&str; 2] = ["Y2FuYXJ5", "Q0FOQVJZ"];
/// Shorter values occur in unrelated text.
const MIN_LENGTH: usize = 12;
/// The length of the part of a private key that is searched for.
const KEY_PART_LENGTH: usize = 48;

/// Values that must not appear in any output.
#[derive(Clone, Default)]
pub struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Returns the tokens, passwords and private keys of a kubeconfig, also those of its proxy, or of the configuration of
    /// an agent.
    pub fn of_kubeconfig(text: &str) -> Self {
        let mut secrets = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.trim().trim_start_matches("- ").split_once(": ") else { continue };
            match name {
                "token" | "password" => secrets.add_text(value.trim_matches(['"', '\''])),
                "client-key-data" => secrets.add_private_key(value.trim_matches(['"', '\''])),
                "proxy-url" | "proxy" => secrets.add_login(value.trim_matches(['"', '\''])),
                _ => {}
            }
        }
        secrets
    }

    /// Returns the values of Secret objects.
    pub fn of_objects(objects: &[Value]) -> Self {
        let mut secrets = Self::default();
        for value in
            objects.iter().filter_map(|secret| secret["data"].as_object()).flat_map(serde_json::Map::values)
        {
            let Some(bytes) = value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            if text.contains("PRIVATE KEY-----") {
                secrets.add_private_key(&BASE64_STANDARD.encode(&bytes));
            } else if text.contains("apiVersion:") || text.contains("caBundle:") {
                secrets.0.append(&mut Self::of_kubeconfig(&text).0);
            } else if !text.contains("-----BEGIN") {
                secrets.add_text(&text);
            }
        }
        secrets
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds a value that is known not to be public.
    pub fn add(&mut self, text: &str) {
        if text.contains("PRIVATE KEY-----") {
            self.add_private_key(&BASE64_STANDARD.encode(text));
        } else {
            self.add_text(text.trim());
        }
    }

    /// Adds the password of a URL, also as the header of a request contains it.
    fn add_login(&mut self, url: &str) {
        let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(login, _)| login);
        if let Some((user, password)) = login.and_then(|login| login.split_once(':')) {
            self.add_text(password);
            self.add_text(&format!("{user}:{password}"));
        }
    }

    fn add_text(&mut self, text: &str) {
        if text.len() >= MIN_LENGTH && !text.contains(char::is_whitespace) {
            self.0.insert(text.to_owned());
            self.0.insert(BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned());
        }
    }

    /// Adds a private key, both base64-encoded as in a kubeconfig and as PEM.
    fn add_private_key(&mut self, encoded: &str) {
        let middle = encoded.len() / 2;
        self.0.extend(encoded.get(middle..middle + KEY_PART_LENGTH).map(str::to_owned));
        let pem = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        let line = String::from_utf8_lossy(&pem).lines().nth(1).map(str::to_owned);
        self.0.extend(line.filter(|line| line.len() >= KEY_PART_LENGTH));
    }

    /// Returns the first line of the text that contains a secret.
    pub fn find_leak(&self, text: &str) -> Option<String> {
        let lowercase = text.to_lowercase();
        if let Some(at) = lowercase.find(MARKER) {
            return Some(line_at(&lowercase, at));
        }
        let mut known = self.0.iter().map(String::as_str).chain(ENCODED_MARKERS);
        known.find_map(|secret| Some(line_at(text, text.find(secret)?)))
    }
}

fn line_at(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    text[line..end].chars().take(2000).collect()
}

/// Texts that are searched for secrets, each with a description of its origin.
pub type Outputs = Vec<(String, String)>;

/// Fails the test if an output contains a secret. Does nothing if the test is already failing.
pub fn assert_no_leaks(secrets: &Secrets, outputs: &[(String, String)]) {
    if std::thread::panicking() {
        return;
    }
    let leaks: Vec<_> =
        outputs.iter().filter_map(|(origin, text)| Some((origin, secrets.find_leak(text)?))).collect();
    assert!(leaks.is_empty(), "secrets are leaked: {leaks:#?}");
}

/// Returns the arguments and the environment of a process; both are empty if it has exited.
pub fn process(pid: u32) -> Outputs {
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        (format!("{name} of process {pid}"), String::from_utf8_lossy(&bytes).into_owned())
    };
    vec![read("cmdline"), read("environ")]
}

/// Returns every file below a folder.
pub fn files(folder: &Path) -> Outputs {
    let mut outputs = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                outputs.push(file(&path));
            }
        }
    }
    outputs
}

fn file(path: &Path) -> (String, String) {
    let bytes = std::fs::read(path).unwrap_or_default();
    (path.to_string_lossy().into_owned(), String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns Events in full, and only the status of other objects: their spec is written by users.
pub fn objects(objects: &[Value]) -> Outputs {
    let output = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let text = if kind == "Event" { object.to_string() } else { object["status"].to_string() };
        (format!("{kind} {name}"), text)
    };
    objects.iter().map(output).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_found_in_every_encoding() {
        let key = BASE64_STANDARD.encode(format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
            "ab1+".repeat(16)
        ));
        let kubeconfig = format!(
            "apiVersion: v1\nusers:\n- user:\n    token: tok-0123456789\n    client-key-data: {key}\n"
        );
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let list = [
            json!({"data": {"value": encoded(&kubeconfig), "password": encoded("correct-horse-battery"), "short": encoded("user")}}),
            json!({"data": {"ca.crt": encoded("-----BEGIN CERTIFICATE-----\nMIIB\n")}}),
            json!({"data": {"value": encoded("apiVersion: v1\n  proxy-url: http://fleet.blue:hmac-0123456789@hub:8132\n")}}),
            json!({"data": {"agent.yaml": encoded("hubs:\n- caBundle: |\n    -----BEGIN\n  token: v1.join-0123456789\n")}}),
        ];
        let secrets = Secrets::of_objects(&list);
        for text in [
            "a Canary in a log".to_owned(),
            encoded("canary-1"),
            "token tok-0123456789".to_owned(),
            "CONNECT with hmac-0123456789".to_owned(),
            format!("Basic {}", encoded("fleet.blue:hmac-0123456789")),
            "joined with v1.join-0123456789".to_owned(),
            "correct-horse-battery".to_owned(),
            encoded("correct-horse-battery"),
            format!("key: {key}"),
            "ab1+".repeat(16),
        ] {
            assert!(secrets.find_leak(&text).is_some(), "{text}");
        }
        assert_eq!(secrets.find_leak("user MIIB -----BEGIN CERTIFICATE-----"), None);
    }
}
