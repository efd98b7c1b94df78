//! The values of parameters that come from Secrets, so that they can be masked wherever a package puts them.

use std::{cmp::Reverse, collections::BTreeSet, fmt};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::{Parameters, SecretContent, SourceValue, value_from_yaml};

/// Replaces a secret in a text.
pub const MASKED: &str = "<masked>";
/// Shorter values are masked only where they are the whole text: as a part of it, they are most likely something else.
const MIN_PART: usize = 4;

/// The values of parameters that come from Secrets or from objects with unknown content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretValues {
    texts: BTreeSet<String>,
    /// Where such values are in the parameters.
    paths: BTreeSet<Vec<String>>,
}

/// Omits the values.
impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValues").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl SecretValues {
    /// Adds what was read from a source.
    pub fn add_source(&mut self, value: &SourceValue, secret: SecretContent) {
        if secret == SecretContent::None {
            return;
        }
        let (_, content) = value.clone().into_template_data();
        match secret {
            SecretContent::DataOfObjects => {
                let objects = content.as_array().map_or(&[][..], Vec::as_slice);
                objects.iter().filter_map(|object| object.get("data")).for_each(|data| self.add_below(data));
                return;
            }
            SecretContent::None | SecretContent::All => {}
        }
        if let Some(parsed) = content.as_str().and_then(|text| value_from_yaml("source", text).ok()) {
            self.add_below(&parsed);
        }
        self.add_below(&content);
    }

    /// Adds other values.
    pub fn extend(&mut self, other: &Self) {
        self.texts.extend(other.texts.iter().cloned());
        self.paths.extend(other.paths.iter().cloned());
    }

    /// Adds a layer of parameters that comes from a source, and remembers where its values are.
    pub fn add_layer(&mut self, layer: &Parameters) {
        let mut path = Vec::new();
        self.add_leaves(layer, &mut path);
    }

    /// Adds values that were stored in a Secret before: those where the current layers have secret values, or all if no layers are
    /// known. Text that cannot be parsed counts as a whole.
    pub fn add_stored(&mut self, text: &str) {
        let Ok(values) = value_from_yaml("values", text) else { return self.add_text(text) };
        if self.paths.is_empty() {
            // Nothing says which of them are secret, so short ones, such as numbers of replicas, are not counted as such.
            let mut all = Self::default();
            all.add_below(&values);
            self.texts.extend(all.texts.into_iter().filter(|text| is_part(text)));
            return;
        }
        for path in self.paths.clone() {
            let found = path.iter().try_fold(&values, |value, name| value.get(name));
            if let Some(found) = found {
                self.add_below(found);
            }
        }
    }

    /// Returns what hides these values.
    pub fn mask(&self) -> SecretMask<'_> {
        let mut parts: Vec<_> = self.texts.iter().map(String::as_str).filter(|text| is_part(text)).collect();
        // A value may be part of another one.
        parts.sort_by_key(|part| Reverse(part.len()));
        SecretMask { texts: &self.texts, parts }
    }

    /// Returns whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn add_leaves(&mut self, layer: &Parameters, path: &mut Vec<String>) {
        for (name, value) in layer {
            path.push(name.clone());
            match value {
                Value::Object(below) if !below.is_empty() => self.add_leaves(below, path),
                value => {
                    self.paths.insert(path.clone());
                    self.add_below(value);
                }
            }
            path.pop();
        }
    }

    fn add_below(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => {
                self.texts.insert(number.to_string());
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_below(item)),
            Value::Object(fields) => fields.values().for_each(|value| self.add_below(value)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds a text in the forms that templates give it: with other indentation, as base64, and as part of JSON.
    fn add_text(&mut self, text: &str) {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        let quoted = Value::from(trimmed).to_string();
        let lines = trimmed.lines().map(str::trim).filter(|line| is_part(line));
        self.texts.extend(lines.map(str::to_owned));
        for form in [text, trimmed] {
            self.texts.insert(form.to_owned());
            self.texts.insert(BASE64_STANDARD.encode(form));
        }
        self.texts.insert(quoted.trim_matches('"').to_owned());
    }
}

/// Hides secret values in texts.
pub struct SecretMask<'a> {
    texts: &'a BTreeSet<String>,
    /// Longest first.
    parts: Vec<&'a str>,
}

impl SecretMask<'_> {
    /// Returns a text without the values.
    pub fn hide(&self, text: &str) -> String {
        if self.texts.contains(text) {
            return MASKED.to_owned();
        }
        let mut hidden = text.to_owned();
        for part in &self.parts {
            if hidden.contains(part) {
                hidden = hidden.replace(part, MASKED);
            }
        }
        hidden
    }
}

/// Returns whether a text is masked where it is part of another one.
fn is_part(text: &str) -> bool {
    text.chars().count() >= MIN_PART
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layer(value: Value) -> SecretValues {
        let Value::Object(layer) = value else { panic!("no layer") };
        let mut secrets = SecretValues::default();
        secrets.add_layer(&layer);
        secrets
    }

    #[test]
    fn values_are_hidden_in_all_forms() {
        let secrets = layer(json!({"login": {"password": "canary-1", "pin": 7, "port": 8443}, "on": true}));
        let rows = [
            ("canary-1", "<masked>"),
            ("https://admin:canary-1@db", "https://admin:<masked>@db"),
            ("Y2FuYXJ5LTE=", "<masked>"),
            ("other", "other"),
            // Short values are hidden only as a whole.
            ("7", "<masked>"),
            ("17", "17"),
            ("port=8443", "port=<masked>"),
            ("true", "true"),
        ];
        for (text, expected) in rows {
            assert_eq!(secrets.mask().hide(text), expected, "{text}");
        }
        assert!(!format!("{secrets:?}").contains("canary"));
    }

    #[test]
    fn lines_of_a_text_are_hidden_with_other_indentation_and_in_json() {
        let secrets = layer(json!({"key": "-----BEGIN KEY-----\ncanary\"2\n"}));
        assert_eq!(
            secrets.mask().hide("key: |\n    -----BEGIN KEY-----\n    canary\"2"),
            "key: |\n    <masked>\n    <masked>"
        );
        let json = json!({"key": "canary\"2"}).to_string();
        assert!(!layer(json!({"key": "canary\"2"})).mask().hide(&json).contains("canary"));
    }

    #[test]
    fn what_a_template_gets_is_hidden_too() {
        let mut secrets = SecretValues::default();
        let text = SourceValue::Text("user: admin\npassword: canary-3\n".to_owned());
        secrets.add_source(&text, SecretContent::All);
        assert_eq!(secrets.mask().hide("dsn://canary-3"), "dsn://<masked>");
        let object =
            json!({"kind": "Secret", "metadata": {"name": "login"}, "data": {"password": "canary-4"}});
        for (content, expected) in
            [(SecretContent::DataOfObjects, "login <masked>"), (SecretContent::None, "login canary-4")]
        {
            let mut secrets = SecretValues::default();
            secrets.add_source(&SourceValue::Objects(vec![object.clone()]), content);
            assert_eq!(secrets.mask().hide("login canary-4"), expected);
        }
    }

    #[test]
    fn stored_values_are_hidden_where_the_current_ones_are_secret() {
        let mut secrets = layer(json!({"login": {"password": "canary-new"}}));
        secrets.add_stored("login: {password: canary-old}\nimage: registry/web\n");
        assert_eq!(secrets.mask().hide("canary-old registry/web"), "<masked> registry/web");
        let mut unknown = SecretValues::default();
        unknown.add_stored("login: {password: canary-old}\nimage: registry/web\n");
        assert_eq!(unknown.mask().hide("canary-old registry/web"), "<masked> <masked>");
    }
}
