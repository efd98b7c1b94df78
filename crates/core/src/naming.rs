//! Names of generated objects: readable, unique, bounded in length, and deterministic.

use crate::digest::Digest;

const LONGEST: usize = 63;
const HASH: usize = 8;
/// The longest release name that Helm accepts.
const LONGEST_RELEASE: usize = 53;

/// Returns the name of the release object of `placement` for `cluster`. The hash distinguishes `a-b` on `c` from `a` on
/// `b-c`.
pub fn release_object(placement: &str, cluster: &str) -> String {
    readable(&format!("{placement}-{cluster}"), &[placement, cluster], LONGEST)
}

/// Returns the name of a release for which the user has set none.
pub fn generated_release(package: &str, placement: &str, cluster: &str) -> String {
    readable(package, &[package, placement, cluster], LONGEST_RELEASE)
}

/// Returns a label value for `name`: the name itself if it is short enough.
pub fn label_value(name: &str) -> String {
    if name.len() <= LONGEST { name.to_owned() } else { readable(name, &[name], LONGEST) }
}

fn readable(text: &str, parts: &[&str], longest: usize) -> String {
    let hash = &Digest::of(parts.join("\n")).hex()[..HASH].to_owned();
    let end = text.len().min(longest - HASH - 1);
    let end = (0..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}-{hash}", text[..end].trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_readable_and_short() {
        assert_ne!(release_object("a-b", "c"), release_object("a", "b-c"));
        assert!(release_object("calico", "blue").starts_with("calico-blue-"));
        let long = release_object(&"p".repeat(100), &"c".repeat(60));
        assert!(long.len() <= 63, "{long}");
        assert_ne!(long, release_object(&"p".repeat(101), &"c".repeat(60)));
        assert!(generated_release(&"x".repeat(90), "p", "c").len() <= 53);
    }

    #[test]
    fn a_truncated_name_does_not_end_in_a_dash() {
        let name = release_object(&format!("{}-tail", "a".repeat(53)), "c");
        assert!(!name.contains("--"), "{name}");
    }

    #[test]
    fn label_values_keep_short_names() {
        assert_eq!(label_value("calico"), "calico");
        assert!(label_value(&"n".repeat(200)).len() <= 63);
    }
}
