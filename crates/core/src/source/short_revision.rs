//! Revisions in texts for people.

/// Number of characters, as Git shows them.
const LENGTH: usize = 7;

/// Returns the start of a revision.
pub fn short_revision(revision: &str) -> &str {
    revision.get(..LENGTH).unwrap_or(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_characters_are_shown() {
        assert_eq!(short_revision("3f1a354c0ffee"), "3f1a354");
        assert_eq!(short_revision("c1"), "c1");
    }
}
