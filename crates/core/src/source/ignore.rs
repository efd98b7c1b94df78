//! Which files of a Source are left out.

/// The patterns of `spec.ignore`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignore(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// Whether the pattern matches a path from the root. Otherwise it matches a name at any depth.
    is_path: bool,
    tokens: Vec<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `*`: any characters except `/`.
    Name,
    /// `**`: any characters.
    Path,
    /// `**/`: any folders, also none.
    Folders,
}

impl Ignore {
    pub fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| Pattern::new(pattern)).collect())
    }

    /// Returns whether a file or folder is left out, with everything below it.
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.0.iter().any(|pattern| pattern.matches(if pattern.is_path { path } else { name }))
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let text = text.trim_end_matches('/');
        let is_path = text.contains('/');
        Self { is_path, tokens: tokens(text.trim_start_matches('/')) }
    }

    /// Matches in time proportional to the lengths of pattern and text: `reached` has the positions of the text up to
    /// which the tokens so far can match.
    fn matches(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        for token in &self.tokens {
            reached = next(*token, text, &reached);
        }
        reached[text.len()]
    }
}

fn next(token: Token, text: &[u8], reached: &[bool]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    let mut any_before = false;
    for (at, &here) in reached.iter().enumerate() {
        any_before |= here;
        let previous = at.checked_sub(1).map(|before| (text[before], before));
        next[at] = match token {
            Token::Byte(byte) => previous.is_some_and(|(last, before)| last == byte && reached[before]),
            Token::Name => here || previous.is_some_and(|(last, before)| last != b'/' && next[before]),
            Token::Path => any_before,
            Token::Folders => here || any_before && previous.is_some_and(|(last, _)| last == b'/'),
        };
    }
    next
}

fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text.as_bytes();
    let mut tokens = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        let (token, remaining) = match (first, after) {
            (b'*', [b'*', b'/', after @ ..]) => (Token::Folders, after),
            (b'*', [b'*', after @ ..]) => (Token::Path, after),
            (b'*', after) => (Token::Name, after),
            (byte, after) => (Token::Byte(*byte), after),
        };
        tokens.push(token);
        rest = remaining;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_or_paths() {
        let rows = [
            ("README.md", "README.md", true),
            ("README.md", "docs/README.md", true),
            ("README.md", "README.mdx", false),
            ("*.png", "docs/a.png", true),
            ("*.png", "docs/a.png.yaml", false),
            ("/docs", "docs", true),
            ("/docs", "a/docs", false),
            ("docs/", "a/docs", true),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/b/b/c", false),
            ("a/**/c", "a/b/b/c", true),
            ("a/**/c", "a/c", true),
            ("a/**", "a/b/c", true),
            ("**/test", "test", true),
            ("**/test", "a/b/test", true),
            ("**/test", "a/b/contest", false),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, path, expected) in rows {
            assert_eq!(Ignore::new(&[pattern.to_owned()]).matches(path), expected, "{pattern} {path}");
        }
        assert!(!Ignore::default().matches("a"));
    }
}
