//! Edits the text of a kubeconfig. What is written is always parsed again and compared with the intended content.

use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use crate::yaml::strict_options;

const MAX_DEPTH: usize = 64;
const FIELD: &str = "proxy-url";

/// Parses a kubeconfig. Returns `None` if it is not a YAML map.
pub fn parse(text: &str) -> Option<Value> {
    let options = strict_options(MAX_DEPTH, DuplicateKeyPolicy::Error);
    serde_saphyr::from_str_with_options::<Value>(text, options).ok().filter(Value::is_object)
}

/// Returns `text` with this proxy, or without one, in the cluster entry at `index` of `config`, its content. One line is
/// changed if that is possible. A text in another style is written again as JSON, which is YAML too.
pub fn with_proxy(text: &str, mut config: Value, index: usize, url: Option<&str>) -> String {
    if let Some(cluster) = config["clusters"][index]["cluster"].as_object_mut() {
        match url {
            Some(url) => cluster.insert(FIELD.to_owned(), url.into()),
            None => cluster.remove(FIELD),
        };
    }
    let intended = |edited: &String| parse(edited).as_ref() == Some(&config);
    one_line_edits(text, url).find(intended).unwrap_or_else(|| format!("{config:#}\n"))
}

/// Returns texts that differ from `text` in one line. Which of them is the intended one depends on the rest of the text.
fn one_line_edits<'a>(text: &'a str, url: Option<&'a str>) -> impl Iterator<Item = String> + 'a {
    let field = url.map(|url| format!("{FIELD}: {}", Value::from(url)));
    let lines: Vec<_> = text.split('\n').collect();
    (0..lines.len()).filter_map(move |at| {
        let line = lines[at];
        let indent = &line[..line.len() - line.trim_start().len()];
        let new = field.as_ref().map(|field| format!("{indent}{field}"));
        let mut edited: Vec<&str> = lines.clone();
        let content = line.trim_start();
        if content.starts_with("proxy-url:") {
            edited.splice(at..=at, new.as_deref());
        } else if content.starts_with("server:") && new.is_some() {
            edited.splice(at..at, new.as_deref());
        } else {
            return None;
        }
        Some(edited.join("\n"))
    })
}
