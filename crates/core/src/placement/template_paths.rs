//! Finds the fields that a Go template reads, so that changes of all other fields do not matter to it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The fields that a template reads, or a superset of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePaths {
    /// The template uses its whole data, or it cannot be parsed.
    All,
    /// Each path includes everything below it.
    Fields(BTreeSet<Vec<String>>),
}

impl TemplatePaths {
    /// Parses the actions of a template.
    ///
    /// Chains such as `.Cluster.metadata.name` and `$.Cluster.metadata.name` are paths, also in bodies of `with` and
    /// `range`, where the former are relative: a path too many does no harm. Relative chains and those of variables only
    /// read below a path that is included where the value is taken. A dot or dollar sign alone is the whole data.
    pub fn of(template: &str) -> Self {
        let mut paths = BTreeSet::new();
        let mut rest = template;
        while let Some(start) = rest.find("{{") {
            let mut action = Action(&rest[start + 2..]);
            loop {
                match action.token() {
                    Some(Token::Path(path)) => {
                        paths.insert(path);
                    }
                    Some(Token::Other) => {}
                    Some(Token::End) => break,
                    Some(Token::Data) | None => return Self::All,
                }
            }
            rest = action.0;
        }
        Self::Fields(paths)
    }

    /// Returns the part of the data that the template reads. It evaluates to the same text as all of the data.
    pub fn select(&self, data: Value) -> Value {
        match self {
            Self::All => data,
            Self::Fields(paths) => {
                let mut selected = Value::Object(Map::new());
                for path in paths {
                    copy(&data, &mut selected, path);
                }
                selected
            }
        }
    }
}

/// Copies the value at a path. Objects on the way are created as far as they exist in `from`; a value on the way that is
/// not an object is copied.
fn copy(from: &Value, to: &mut Value, path: &[String]) {
    let (Some((first, rest)), Value::Object(source), Value::Object(target)) = (path.split_first(), from, to)
    else {
        return;
    };
    let Some(value) = source.get(first) else { return };
    if rest.is_empty() || !value.is_object() {
        target.insert(first.clone(), value.clone());
    } else {
        copy(value, target.entry(first.clone()).or_insert_with(|| Value::Object(Map::new())), rest);
    }
}

/// A part of an action.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A chain of fields.
    Path(Vec<String>),
    /// A dot or dollar sign alone.
    Data,
    Other,
    /// The end of the action.
    End,
}

/// The rest of a template, from within an action.
struct Action<'t>(&'t str);

impl Action<'_> {
    /// Returns the next part. `None` means that the action has no end.
    fn token(&mut self) -> Option<Token> {
        let text = self.0;
        if let Some(rest) = text.strip_prefix("}}") {
            self.0 = rest;
            return Some(Token::End);
        }
        if let Some(comment) = text.strip_prefix("/*") {
            self.0 = comment.split_once("*/")?.1;
            return Some(Token::Other);
        }
        let first = text.chars().next()?;
        self.0 = &text[first.len_utf8()..];
        match first {
            '`' => self.0 = self.0.split_once('`')?.1,
            '"' | '\'' => self.skip_quoted(first)?,
            '.' if self.0.starts_with(|c: char| c.is_ascii_digit()) => {
                self.word();
            }
            '.' => return Some(self.chain()),
            '$' => {
                let is_variable = !self.word().is_empty();
                let is_chain = self.0.starts_with('.');
                if is_chain {
                    self.0 = &self.0[1..];
                }
                return Some(match (is_variable, is_chain) {
                    (true, true) => {
                        self.chain();
                        Token::Other
                    }
                    (true, false) => Token::Other,
                    (false, true) => self.chain(),
                    (false, false) => Token::Data,
                });
            }
            first if is_word(first) => {
                self.word();
            }
            _ => {}
        }
        Some(Token::Other)
    }

    /// Reads the fields after a dot: `a.b.c`.
    fn chain(&mut self) -> Token {
        let mut path = Vec::new();
        loop {
            let field = self.word();
            if field.is_empty() {
                break;
            }
            path.push(field.to_owned());
            match self.0.strip_prefix('.') {
                Some(rest) if rest.starts_with(is_word) => self.0 = rest,
                _ => break,
            }
        }
        if path.is_empty() { Token::Data } else { Token::Path(path) }
    }

    fn word(&mut self) -> &str {
        let text = self.0;
        let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
        self.0 = &text[end..];
        &text[..end]
    }

    fn skip_quoted(&mut self, quote: char) -> Option<()> {
        let mut escaped = false;
        for (at, c) in self.0.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if c == quote => {
                    self.0 = &self.0[at + c.len_utf8()..];
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(template: &str) -> Option<Vec<String>> {
        match TemplatePaths::of(template) {
            TemplatePaths::All => None,
            TemplatePaths::Fields(paths) => Some(paths.iter().map(|path| path.join(".")).collect()),
        }
    }

    #[test]
    fn chains_of_fields_are_found() {
        let rows: [(&str, &[&str]); 14] = [
            ("a: 1 .Cluster", &[]),
            ("{{ .Cluster.metadata.name }}", &["Cluster.metadata.name"]),
            ("{{- .Cluster.a -}} {{.Cluster.b}}", &["Cluster.a", "Cluster.b"]),
            ("{{ index .Cluster.metadata.labels \"a.b/c}}\" | quote }}", &["Cluster.metadata.labels"]),
            ("{{ if eq .Cluster.kind `.x}}` }}{{ else }}{{ end }}", &["Cluster.kind"]),
            (
                "{{ range .Cluster.list }}{{ .name }}{{ $.ControlPlane.kind }}{{ end }}",
                &["Cluster.list", "ControlPlane.kind", "name"],
            ),
            ("{{ with $c := .Cluster }}{{ $c.metadata.name }}{{ end }}", &["Cluster"]),
            ("{{ (.Cluster).kind }}", &["Cluster", "kind"]),
            ("{{ (index .Cluster.list 0).name }}", &["Cluster.list", "name"]),
            ("{{/* . }} */}}{{ .Cluster.a }}", &["Cluster.a"]),
            ("{{ add 1.5 .5 '.' .Cluster.n }}", &["Cluster.n"]),
            ("{{ \"{{ . }}\" }}", &[]),
            ("{{ \"\\\"}} .\" }}{{ .Cluster.é.b_2 }}", &["Cluster.é.b_2"]),
            ("{{ printf \"%s\" .Cluster.a.b | upper }} }} {{ .Cluster.a }}", &["Cluster.a", "Cluster.a.b"]),
        ];
        for (template, expected) in rows {
            let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(paths(template), Some(expected), "{template}");
        }
    }

    #[test]
    fn everything_is_used_if_the_paths_are_unknown() {
        for template in [
            "{{ toJson . }}",
            "{{ template \"x\" $ }}",
            "{{ with . }}{{ .Cluster.a }}{{ end }}",
            "{{ $x := . }}{{ $x.Cluster.a }}",
            "{{ range $key, $value := $ }}{{ end }}",
            "{{ (.).Cluster }}",
            "{{ .Cluster.a",
            "{{ \"open }}",
            "{{ `open }}",
            "{{/* open }}",
        ] {
            assert_eq!(paths(template), None, "{template}");
        }
    }

    #[test]
    fn only_the_paths_are_selected() {
        let data = json!({
            "Cluster": {"metadata": {"name": "blue", "labels": {"a": "b"}}, "spec": {"paused": true}, "status": {}},
            "ControlPlane": {"kind": "Plane"},
        });
        let rows = [
            ("{{ .Cluster.metadata.name }}", json!({"Cluster": {"metadata": {"name": "blue"}}})),
            ("{{ .Cluster.metadata.annotations.zone }}", json!({"Cluster": {"metadata": {}}})),
            ("{{ .Cluster.spec.paused.deeper }}", json!({"Cluster": {"spec": {"paused": true}}})),
            (
                "{{ .Cluster.metadata.labels }}{{ .Cluster.metadata.labels.a }}",
                json!({"Cluster": {"metadata": {"labels": {"a": "b"}}}}),
            ),
            ("{{ .Unknown.field }}", json!({})),
            ("{{ . }}", data.clone()),
        ];
        for (template, expected) in rows {
            assert_eq!(TemplatePaths::of(template).select(data.clone()), expected, "{template}");
        }
    }
}
