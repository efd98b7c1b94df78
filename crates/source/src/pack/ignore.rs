//! The rules of a `.helmignore` file, as Helm applies them when it packages a chart.

const FILE: &str = ".helmignore";
/// Helm ignores the hidden files of `templates` in every chart.
const DEFAULT_RULE: &str = "templates/.?*";

/// The rules of a chart.
#[derive(Debug)]
pub(super) struct IgnoreRules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    pattern: Vec<char>,
    /// Ignores what does not match, and continues with the next rule for what does.
    negated: bool,
    folders_only: bool,
    /// A pattern without a slash is compared with the last part of a path.
    name_only: bool,
}

impl IgnoreRules {
    /// Reads the rules of a chart from its files.
    pub fn of_chart(files: &[(&str, &[u8])]) -> Result<Self, String> {
        let own = files.iter().find(|(path, _)| *path == FILE).map(|(_, content)| *content);
        let text =
            std::str::from_utf8(own.unwrap_or_default()).map_err(|_| format!("{FILE} is not UTF-8 text"))?;
        let mut rules = Vec::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let rule = Rule::parse(line).map_err(|reason| format!("{FILE}, line {}: {reason}", index + 1))?;
            rules.extend(rule);
        }
        rules.extend(Rule::parse(DEFAULT_RULE)?);
        Ok(Self(rules))
    }

    /// Returns whether Helm leaves out the file: because of a rule for it, or for a folder that it is in.
    pub fn ignores(&self, path: &str) -> bool {
        let folders = path.match_indices('/').map(|(at, _)| (&path[..at], true));
        folders.chain([(path, false)]).any(|(path, folder)| self.matches(path, folder))
    }

    fn matches(&self, path: &str, folder: bool) -> bool {
        for rule in &self.0 {
            let applies = folder || !rule.folders_only;
            let matches = applies && rule.matches(path);
            if matches != rule.negated {
                return true;
            }
        }
        false
    }
}

impl Rule {
    /// Returns `None` for an empty line or a comment.
    fn parse(line: &str) -> Result<Option<Self>, &'static str> {
        let rule = line.trim();
        if rule.is_empty() || rule.starts_with('#') {
            return Ok(None);
        }
        if rule.contains("**") {
            return Err("** is not supported");
        }
        let (negated, rule) = rule.strip_prefix('!').map_or((false, rule), |rest| (true, rest));
        let (folders_only, rule) = rule.strip_suffix('/').map_or((false, rule), |rest| (true, rest));
        let name_only = !rule.contains('/');
        let pattern: Vec<_> = rule.strip_prefix('/').unwrap_or(rule).chars().collect();
        if !is_valid(&pattern) {
            return Err("the pattern is invalid");
        }
        Ok(Some(Self { pattern, negated, folders_only, name_only }))
    }

    fn matches(&self, path: &str) -> bool {
        let compared = if self.name_only { path.rsplit('/').next().unwrap_or(path) } else { path };
        let compared: Vec<_> = compared.chars().collect();
        matches(&self.pattern, &compared)
    }
}

/// Returns whether brackets and escapes of a pattern are complete.
fn is_valid(mut pattern: &[char]) -> bool {
    while let [first, rest @ ..] = pattern {
        let after = match first {
            '\\' => rest.get(1..),
            '[' => class(rest, 'x').map(|(_, after)| after),
            _ => Some(rest),
        };
        let Some(after) = after else { return false };
        pattern = after;
    }
    true
}

/// Matches as Go's `filepath.Match` does: `*` and `?` match no slash.
fn matches(mut pattern: &[char], mut text: &[char]) -> bool {
    // The pattern after the last `*`, and the text that it is compared with.
    let mut last: Option<(&[char], &[char])> = None;
    loop {
        if let ['*', rest @ ..] = pattern {
            last = Some((rest, text));
            pattern = rest;
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else if let [letter, after @ ..] = text
            && let Some(rest) = match_letter(pattern, *letter)
        {
            (pattern, text) = (rest, after);
        } else if let Some((rest, [skipped, after @ ..])) = last
            && *skipped != '/'
        {
            last = Some((rest, after));
            (pattern, text) = (rest, after);
        } else {
            return false;
        }
    }
}

/// Returns the rest of the pattern if its start matches the letter. It does not start with `*`.
fn match_letter(pattern: &[char], letter: char) -> Option<&[char]> {
    let (matched, rest) = match pattern {
        [] => return None,
        ['?', rest @ ..] => (letter != '/', rest),
        ['[', inside @ ..] => {
            let (contains, rest) = class(inside, letter)?;
            (contains && letter != '/', rest)
        }
        ['\\', escaped, rest @ ..] => (*escaped == letter, rest),
        [expected, rest @ ..] => (*expected == letter, rest),
    };
    matched.then_some(rest)
}

/// Reads a class of letters, such as `a-z]`, after its opening bracket. Returns whether it contains `letter`, and the rest of the
/// pattern, or `None` if it is incomplete.
fn class(pattern: &[char], letter: char) -> Option<(bool, &[char])> {
    let (negated, mut rest) = match pattern {
        ['^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let (mut contains, mut ranges) = (false, 0);
    loop {
        if let [']', after @ ..] = rest
            && ranges > 0
        {
            return Some((contains != negated, after));
        }
        let (low, after) = class_letter(rest)?;
        let (high, after) = match after {
            ['-', after @ ..] => class_letter(after)?,
            _ => (low, after),
        };
        contains |= (low..=high).contains(&letter);
        (rest, ranges) = (after, ranges + 1);
    }
}

fn class_letter(pattern: &[char]) -> Option<(char, &[char])> {
    match pattern {
        [] | ['-' | ']', ..] | ['\\'] => None,
        ['\\', escaped, rest @ ..] => Some((*escaped, rest)),
        [letter, rest @ ..] => Some((*letter, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<IgnoreRules, String> {
        IgnoreRules::of_chart(&[("Chart.yaml", b""), (FILE, text.as_bytes())])
    }

    #[test]
    fn files_are_ignored_as_helm_does() {
        let rows = [
            ("", "values.yaml", false),
            ("", "templates/.hidden.yaml", true),
            ("", "templates/sub/.hidden.yaml", false),
            ("*.md", "README.md", true),
            ("*.md", "docs/deep/README.md", true),
            ("*.md", "README.md.txt", false),
            ("/README.md", "README.md", true),
            ("/README.md", "docs/README.md", false),
            ("docs/*.md", "docs/a.md", true),
            ("docs/*.md", "docs/deep/a.md", false),
            ("ci/", "ci/values.yaml", true),
            ("ci/", "deep/ci/values.yaml", true),
            ("ci/", "ci", false),
            ("ci", "ci/values.yaml", true),
            ("# *.md\n\n", "README.md", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("*a*b", "aXaXXb", true),
            ("*a*b", "aXaXXbX", false),
            ("d/*/f", "d/e/f", true),
            ("d/*/f", "d/e/e/f", false),
            ("[a-c].txt", "b.txt", true),
            ("[^a-c].txt", "b.txt", false),
            ("\\*.txt", "*.txt", true),
            ("\\*.txt", "a.txt", false),
            ("!*.yaml", "README.md", true),
            ("!*.yaml", "values.yaml", false),
            ("\u{feff}*.md", "README.md", true),
        ];
        for (text, path, expected) in rows {
            assert_eq!(rules(text).unwrap().ignores(path), expected, "{text:?} and {path}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let rules = rules(&"*a".repeat(100)).unwrap();
        assert!(!rules.ignores(&format!("{}b", "a".repeat(250))));
    }

    #[test]
    fn invalid_rules_are_reported_with_their_line() {
        for rule in ["**/a", "[a", "[]", "a\\", "[a-]"] {
            let reason = rules(&format!("*.md\n{rule}\n")).unwrap_err();
            assert!(reason.starts_with(".helmignore, line 2: "), "{rule}: {reason}");
        }
        let files: [(&str, &[u8]); 1] = [(FILE, b"\xff")];
        assert!(IgnoreRules::of_chart(&files).unwrap_err().contains("not UTF-8"));
    }
}
