//! Authentication challenges of registries: `Bearer realm="…",service="…",scope="…"`.

use reqwest::Url;

/// How to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// The registry requires a token from this URL.
    Bearer(Url),
}

impl Challenge {
    /// Parses a `WWW-Authenticate` header.
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parameters(rest);
        let value = |name: &str| {
            parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        let mut url = Url::parse(value("realm")?).ok()?;
        for key in ["service", "scope"] {
            if let Some(value) = value(key) {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        Some(Self::Bearer(url))
    }
}

/// Parses `key="value",key="value"`. Values in quotes may contain commas.
fn parameters(text: &str) -> Vec<(String, String)> {
    let (mut parts, mut quoted, mut start) = (Vec::new(), false, 0);
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((key.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
    };
    parts.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let bearer = |url: &str| Some(Challenge::Bearer(url.parse().unwrap()));
        let rows = [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#,
                bearer("https://auth.example/token?service=r.example&scope=repository%3Aa%2Fb%3Apull%2Cpush"),
            ),
            (r#"Bearer realm="https://auth.example""#, bearer("https://auth.example/")),
            ("Bearer service=\"x\"", None),
            ("Negotiate", None),
            ("", None),
        ];
        for (header, expected) in rows {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }
}
