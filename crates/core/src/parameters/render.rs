//! Renders values as canonical YAML: equal values give equal text, and all YAML parsers read it the same way.

use std::fmt::Write as _;

use serde_json::Value;

use super::Parameters;
use crate::digest::Digest;

/// Rendered values.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Canonical YAML.
    pub text: String,
    /// Digest of the text.
    pub digest: Digest,
}

/// Omits the text, which may be secret.
impl std::fmt::Debug for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendered").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Plain scalars that some YAML parsers do not read as strings.
const RESERVED: [&str; 12] =
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];

/// Renders values with sorted keys, an indentation of two spaces, and strings in quotes unless they are unambiguous.
pub fn render(values: &Parameters) -> Rendered {
    let mut text = String::new();
    if values.is_empty() {
        text.push_str("{}\n");
    } else {
        map(&mut text, values, 0, false);
    }
    let digest = Digest::of(&text);
    Rendered { text, digest }
}

/// With `inline`, the first entry continues the current line, as after the dash of a list item.
fn map(out: &mut String, values: &Parameters, level: usize, inline: bool) {
    let mut sorted: Vec<_> = values.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        indent(out, if inline && index == 0 { 0 } else { level });
        string(out, name);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                map(out, inner, level + 1, false);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                list(out, items, level + 1, false);
            }
            other => scalar(out, other),
        }
    }
}

fn list(out: &mut String, items: &[Value], level: usize, inline: bool) {
    for (index, item) in items.iter().enumerate() {
        indent(out, if inline && index == 0 { 0 } else { level });
        out.push('-');
        match item {
            Value::Object(inner) if !inner.is_empty() => {
                out.push(' ');
                map(out, inner, level + 1, true);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push(' ');
                list(out, inner, level + 1, true);
            }
            other => scalar(out, other),
        }
    }
}

/// Writes a scalar or an empty collection and ends the line.
fn scalar(out: &mut String, value: &Value) {
    out.push(' ');
    match value {
        Value::String(text) => string(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => out.push_str(&other.to_string()),
    }
    out.push('\n');
}

fn string(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        quoted(out, text);
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !RESERVED.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            ' ' => out.push(' '),
            // Parsers reject, fold or drop these if they are not escaped.
            _ if c.is_control() || c.is_whitespace() || !is_printable(c) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn is_printable(c: char) -> bool {
    !matches!(u32::from(c), 0xFEFF | 0xFFFE | 0xFFFF | 0x2028 | 0x2029)
}

fn indent(out: &mut String, level: usize) {
    for _ in 0..level {
        out.push_str("  ");
    }
}
