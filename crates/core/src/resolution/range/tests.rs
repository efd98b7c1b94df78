use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Ranges and the versions in them according to Helm's own library. The tests of the Helm driver check the same file
/// against it.
const HELM: &str = include_str!("helm.tsv");

#[test]
fn ranges_match_like_helm() {
    let mut rows = HELM.lines().map(|line| line.split_once('\t').unwrap());
    let versions: Vec<_> = rows.next().unwrap().1.split(' ').collect();
    for (text, expected) in rows {
        let answer = text.parse::<Range>().map_or_else(
            |_| "refused".to_owned(),
            |range| {
                let contained =
                    versions.iter().filter(|version| range.contains(&parse_version(version).unwrap()));
                contained.copied().collect::<Vec<_>>().join(" ")
            },
        );
        assert_eq!(answer, expected, "{text:?}");
    }
}

#[test]
fn a_star_means_any_version() {
    let star: Range = "*".parse().unwrap();
    assert_eq!(Range::any(), star);
}

#[test]
fn errors_explain_the_problem() {
    let rows = [
        ("latest", "unexpected `latest`"),
        (">=", "a version is missing"),
        ("", "it is empty"),
        ("1.2,", "it ends with a comma"),
        (">=1 - 2", "without operators"),
    ];
    for (text, problem) in rows {
        let message = text.parse::<Range>().unwrap_err().to_string();
        assert!(message.contains(problem) && message.contains("write it like"), "{message}");
    }
    assert!("1 ".repeat(300).parse::<Range>().is_err());
    assert!(["1"; 33].join("||").parse::<Range>().is_err());
}

#[test]
fn kubernetes_versions_are_parsed_without_vendor_suffixes() {
    let rows = [
        ("v1.34.2", Some("1.34.2")),
        ("1.34", Some("1.34.0")),
        ("v1.34.2+vendor.1", Some("1.34.2")),
        ("v1.34.2-gke.5", Some("1.34.2")),
        ("v1.34.2-eks-abc123", Some("1.34.2")),
        ("v1.35.0-alpha.1", Some("1.35.0")),
        ("v1.34.20260101123000", Some("1.34.20260101123000")),
        ("v1.4294967295.0", Some("1.4294967295.0")),
        ("v1.4294967296.0", None),
        ("v1.18446744073709551615.0", None),
        ("v1", None),
        ("", None),
        ("latest", None),
    ];
    for (text, expected) in rows {
        assert_eq!(parse_kubernetes_version(text).map(|version| version.to_string()).as_deref(), expected);
    }
    for text in ["v1.34.2-gke.5", "v1.34.2+vendor"] {
        assert!(">=1.30 <1.35".parse::<Range>().unwrap().contains(&parse_kubernetes_version(text).unwrap()));
    }
}

#[test]
fn published_versions_may_omit_components() {
    let rows =
        [("v1.34", Some("1.34.0")), ("2.0.0-rc.1+5", Some("2.0.0-rc.1+5")), ("1.x", None), ("nightly", None)];
    for (text, expected) in rows {
        assert_eq!(parse_version(text).map(|version| version.to_string()).as_deref(), expected, "{text}");
    }
}

/// A range, valid or not, of the parts of which ranges consist.
fn range_text() -> impl Strategy<Value = String> {
    let parts = [
        "1",
        "1.2",
        "1.2.3",
        "1.2.3-rc.1",
        "v1",
        "x",
        "*",
        "0",
        "01",
        "18446744073709551616",
        "<",
        ">=",
        "!=",
        "~",
        "^",
        "=",
        " ",
        ",",
        "||",
        " - ",
        "-",
        "+b",
        ".",
        "é",
    ];
    vec(select(parts.to_vec()), 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn parsing_any_text_ends_with_a_short_message(text in prop_oneof![".{0,2000}", range_text()]) {
        if let Err(error) = text.parse::<Range>() {
            prop_assert!(error.to_string().chars().count() < 2 * MAX_LENGTH);
        }
    }

    #[test]
    fn a_range_that_is_shown_and_parsed_again_contains_the_same(
        text in range_text(), numbers in vec((0..3_u64, 0..3_u64, 0..3_u64), 10),
    ) {
        let Ok(range) = text.parse::<Range>() else { return Ok(()) };
        let again: Range = range.to_string().parse().unwrap();
        for (major, minor, patch) in numbers {
            let version = Version::new(major, minor, patch);
            prop_assert_eq!(range.contains(&version), again.contains(&version), "{} {}", text, version);
        }
    }

    #[test]
    fn exactly_one_version_is_in_an_exact_range(a in (0..5_u64, 0..5_u64, 0..5_u64), b in (0..5_u64, 0..5_u64, 0..5_u64)) {
        let (a, b) = (Version::new(a.0, a.1, a.2), Version::new(b.0, b.1, b.2));
        prop_assert_eq!(Range::exactly(&a).contains(&b), a == b);
    }
}
