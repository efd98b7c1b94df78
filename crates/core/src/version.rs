//! Which of the published versions a reference means.

use crate::resolution::{Range, parse_version};

/// The published version that `wanted` means: that very one, else the newest in the range, else (None) the newest
/// that is not a pre-release.
pub fn choose<'a>(wanted: Option<&str>, published: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let published: Vec<&str> = published.into_iter().collect();
    let Some(wanted) = wanted else {
        return newest(&published, &Range::any());
    };
    if let Some(same) = published.iter().find(|version| **version == wanted) {
        return Some(same);
    }
    newest(&published, &wanted.parse().ok()?)
}

fn newest<'a>(published: &[&'a str], range: &Range) -> Option<&'a str> {
    published
        .iter()
        .filter_map(|text| parse_version(text).map(|version| (version, *text)))
        .filter(|(version, _)| range.contains(version))
        .max()
        .map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_range_and_newest() {
        let published = ["1.0.0", "1.10.0", "1.9.0", "v2.0.0-rc.1", "0.9.0", "nightly"];
        let rows = [
            (None, Some("1.10.0")),
            (Some("1.9.0"), Some("1.9.0")),
            (Some("v1.9.0"), Some("1.9.0")),
            (Some("2.0.0-rc.1"), Some("v2.0.0-rc.1")),
            (Some("nightly"), Some("nightly")),
            (Some("~1.9"), Some("1.9.0")),
            (Some(">=1.0.0, <1.5.0"), Some("1.0.0")),
            (Some(">=1.0.0 <1.10.0"), Some("1.9.0")),
            (Some("1.9"), Some("1.9.0")),
            (Some("0.x || 1.9.x"), Some("1.9.0")),
            (Some(">=2.0.0-0"), Some("v2.0.0-rc.1")),
            (Some("3.0.0"), None),
            (Some("not a version"), None),
        ];
        for (wanted, expected) in rows {
            assert_eq!(choose(wanted, published), expected, "{wanted:?}");
        }
    }
}
