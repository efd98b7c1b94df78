//! Revisions in texts for people.

/// Number of characters, as Git shows them.
const LENGTH: usize = 7;
/// What the digests of artifacts and buckets start with.
const ALGORITHM: &str = "sha256:";

/// Returns the start of a revision. The algorithm of a digest is left out.
pub fn short_revision(revision: &str) -> &str {
    let digits = revision_digits(revision);
    digits.get(..LENGTH).unwrap_or(digits)
}

/// Returns a revision without the algorithm of a digest.
pub fn revision_digits(revision: &str) -> &str {
    revision.strip_prefix(ALGORITHM).unwrap_or(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_characters_are_shown() {
        assert_eq!(short_revision("3f1a354c0ffee"), "3f1a354");
        assert_eq!(short_revision("c1"), "c1");
        assert_eq!(short_revision("sha256:9c1d2aa0c1f2"), "9c1d2aa");
    }
}
