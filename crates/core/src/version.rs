//! Which of the published versions a reference means.

use semver::{Version, VersionReq};

/// The published version that `wanted` means: that very one, else the newest in the range, else (None) the newest
/// that is not a pre-release.
pub fn choose<'a>(wanted: Option<&str>, published: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let published: Vec<&str> = published.into_iter().collect();
    let Some(wanted) = wanted else {
        return newest(&published, &VersionReq::STAR);
    };
    if let Some(same) = published.iter().find(|version| **version == wanted) {
        return Some(same);
    }
    if let Some(wanted) = parse(wanted) {
        return published.iter().copied().find(|version| parse(version).as_ref() == Some(&wanted));
    }
    newest(&published, &VersionReq::parse(wanted).ok()?)
}

fn newest<'a>(published: &[&'a str], range: &VersionReq) -> Option<&'a str> {
    published
        .iter()
        .filter_map(|text| parse(text).map(|version| (version, *text)))
        .filter(|(version, _)| range.matches(version))
        .max()
        .map(|(_, text)| text)
}

fn parse(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
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
            (Some("3.0.0"), None),
            (Some("not a version"), None),
        ];
        for (wanted, expected) in rows {
            assert_eq!(choose(wanted, published), expected, "{wanted:?}");
        }
    }
}
