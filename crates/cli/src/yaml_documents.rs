//! Splits files into YAML documents.

/// Returns the YAML documents of a text, each with the line on which it starts.
pub fn split(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let rest =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        match rest {
            // A document may begin on the line of its separator.
            Some(rest) if has_content(rest) => documents.push((number + 1, rest.to_owned())),
            Some(_) => documents.push((number + 2, String::new())),
            None => {
                if let Some((_, document)) = documents.last_mut() {
                    document.push_str(line);
                }
            }
        }
    }
    documents
}

/// Returns whether a document contains more than comments.
pub fn has_content(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_the_lines_on_which_they_start() {
        let text = "a: 1\n--- # next\nb: |\n  ---\n--- {c: 1}\n---\n# nothing\n";
        let found: Vec<_> = split(text).into_iter().filter(|(_, text)| has_content(text)).collect();
        let expected = [(1, "a: 1\n"), (3, "b: |\n  ---\n"), (5, " {c: 1}\n")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
