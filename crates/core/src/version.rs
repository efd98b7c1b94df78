//! Selects a published version for a package reference.

use crate::resolution::{Range, parse_version};

/// Returns the published version for a requested version or range: the version itself if it is published, else the
/// newest version in the range. `None` requests the newest version that is not a pre-release.
pub fn choose<'a>(requested: Option<&str>, published: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let published: Vec<&str> = published.into_iter().collect();
    let Some(requested) = requested else {
        return newest(&published, &Range::any());
    };
    if let Some(same) = published.iter().find(|version| **version == requested) {
        return Some(same);
    }
    newest(&published, &requested.parse().ok()?)
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
    fn exact_versions_ranges_and_the_newest() {
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
        for (requested, expected) in rows {
            assert_eq!(choose(requested, published), expected, "{requested:?}");
        }
    }
}
