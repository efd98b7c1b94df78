//! The extensions that a Cluster or its template lists.
//!
//! An annotation has them separated by commas or line ends, as `NAME`, `NAME@RANGE` or `platform/NAME@RANGE`. A topology
//! variable named `extensions` has a list of such texts, or of objects with `name`, `scope` and `version`.

use serde_json::Value;

/// The topology variable.
const VARIABLE: &str = "extensions";

/// An extension that is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// It is the platform's, whatever is beside the cluster.
    pub platform: bool,
    pub range: Option<String>,
}

/// What a Cluster lists, and what of it cannot be read.
pub fn listed(annotation: Option<&str>, cluster: &Value) -> (Vec<Entry>, Vec<String>) {
    let texts =
        annotation.unwrap_or_default().split([',', '\n']).map(str::trim).filter(|text| !text.is_empty());
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    for entry in texts.map(entry).chain(variable(cluster)) {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(why) => unreadable.push(why),
        }
    }
    (entries, unreadable)
}

fn variable(cluster: &Value) -> Vec<Result<Entry, String>> {
    let variables = cluster.pointer("/spec/topology/variables").and_then(Value::as_array);
    let ours = variables.and_then(|all| all.iter().find(|variable| variable["name"] == VARIABLE));
    match ours.map(|variable| &variable["value"]) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(item).collect(),
        Some(_) => vec![Err(format!("topology variable {VARIABLE} is not a list"))],
    }
}

fn item(value: &Value) -> Result<Entry, String> {
    if let Some(text) = value.as_str() {
        return entry(text.trim());
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str);
    let name =
        text("name").ok_or_else(|| format!("{value} names no extension: write NAME or {{name: NAME}}"))?;
    let range = text("version").map(ToOwned::to_owned);
    checked(Entry { name: name.to_owned(), platform: text("scope") == Some("Platform"), range })
}

fn entry(text: &str) -> Result<Entry, String> {
    let (name, range) = match text.split_once('@') {
        Some((name, range)) => (name.trim(), Some(range.trim().to_owned())),
        None => (text, None),
    };
    let (platform, name) = name.strip_prefix("platform/").map_or((false, name), |name| (true, name));
    checked(Entry { name: name.to_owned(), platform, range })
}

fn checked(entry: Entry) -> Result<Entry, String> {
    let letters =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ['-', '.'].contains(&letter);
    if entry.name.is_empty() || !entry.name.chars().all(letters) {
        return Err(format!(
            "`{}` is no name of an extension: write NAME, NAME@RANGE or platform/NAME",
            entry.name
        ));
    }
    match entry.range.as_deref().map(str::parse::<crate::resolution::Range>) {
        Some(Err(error)) => Err(format!("{}: {error}", entry.name)),
        _ => Ok(entry),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, platform: bool, range: Option<&str>) -> Entry {
        Entry { name: name.to_owned(), platform, range: range.map(ToOwned::to_owned) }
    }

    #[test]
    fn lists_are_read_wherever_they_are() {
        let cluster = json!({"spec": {"topology": {"variables": [
            {"name": "other", "value": 1},
            {"name": "extensions", "value": ["dns", {"name": "net", "scope": "Platform", "version": "^1.2"}]},
        ]}}});
        let (found, unreadable) = listed(Some("cni, platform/storage@~2.1,\n metrics "), &cluster);
        let expected = [
            entry("cni", false, None),
            entry("storage", true, Some("~2.1")),
            entry("metrics", false, None),
            entry("dns", false, None),
            entry("net", true, Some("^1.2")),
        ];
        assert_eq!((found.as_slice(), unreadable.len()), (&expected[..], 0));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let cluster = json!({"spec": {"topology": {"variables": [{"name": "extensions", "value": "cni"}]}}});
        let (found, unreadable) = listed(Some("Not a name, cni@soon, ok"), &cluster);
        assert_eq!(found, [entry("ok", false, None)]);
        assert_eq!(unreadable.len(), 3, "{unreadable:?}");
    }
}
