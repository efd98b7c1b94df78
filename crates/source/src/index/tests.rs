use proptest::prelude::*;

use super::*;

fn read(yaml: &[u8]) -> Result<Index, IndexError> {
    Index::read(yaml, tempfile::tempfile().unwrap())
}

fn assert_rejected(yaml: &str, text: &str) {
    let reason = read(yaml.as_bytes()).unwrap_err().to_string();
    assert!(reason.contains(text), "{reason:?} does not contain {text:?}");
}

fn versions(index: &Index, chart: &str) -> Vec<String> {
    index.chart_versions(chart).map(|version| version.unwrap().version).collect()
}

fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn charts_are_found_and_unusable_versions_are_skipped() {
    let index = read(
        br"
apiVersion: v1
generated: 2026-01-01T00:00:00Z
entries:
  web:
  - {version: 2.0.0, urls: [web-2.0.0.tgz, mirror.tgz], digest: 12345e67, annotations: {a: [b, {c: d}]}}
  - version: 1.0.0
    created: 2026-01-01
    maintainers: [{name: Ann}]
    urls:
    - https://cdn.example/web-1.0.0.tgz
  - {version: 0.9.0}
  - {urls: [no-version.tgz]}
  - null
  empty: []
  nothing:
  db:
  - {version: 3.0.0, urls: [db.tgz]}
serverInfo: {}
",
    )
    .unwrap();
    assert_eq!(versions(&index, "web"), ["2.0.0", "1.0.0"]);
    assert_eq!(versions(&index, "db"), ["3.0.0"]);
    assert_eq!(versions(&index, "empty"), [""; 0]);
    assert_eq!(index.find("missing", None).unwrap(), FoundVersion::NoChart);
    assert_eq!(index.find("empty", None).unwrap(), FoundVersion::NoVersion { newest: None });
    let newest = Some("2.0.0".to_owned());
    assert_eq!(index.find("web", Some("9.0.0")).unwrap(), FoundVersion::NoVersion { newest });
    let find = |wanted| match index.find("web", wanted).unwrap() {
        FoundVersion::Found(entry) => entry,
        other => panic!("{other:?}"),
    };
    assert_eq!(find(Some("1.0.0")).urls, ["https://cdn.example/web-1.0.0.tgz"]);
    let web = find(None);
    assert_eq!(find(None), web, "also if it is kept in memory");
    assert_eq!(web.urls, ["web-2.0.0.tgz"], "only the first URL is used");
    assert_eq!(
        web.digest.as_deref(),
        Some("12345e67"),
        "a digest is parsed as text, even if it looks like a number"
    );
    assert!(read(b"apiVersion: v1\nentries: {}\n").is_ok());
    assert!(read(b"{\"entries\": {\"web\": [{\"version\": \"1.0.0\", \"urls\": [\"x\"]}]}}").is_ok());
}

#[test]
fn results_are_kept_also_misses_and_the_least_recently_used_is_replaced() {
    let versions = lines(200, |n| format!("  - {{version: 1.0.{n}, urls: [x]}}\n"));
    let index = read(format!("entries:\n  web:\n{versions}").as_bytes()).unwrap();
    let miss = FoundVersion::NoVersion { newest: Some("1.0.199".to_owned()) };
    assert_eq!(index.known("missing", None), Some(FoundVersion::NoChart));
    assert_eq!(index.known("web", Some("9.0.0")), None);
    assert_eq!(index.find("web", Some("9.0.0")).unwrap(), miss);
    for number in 0..150 {
        index.find("web", Some(&format!("1.0.{number}"))).unwrap();
        assert_eq!(index.known("web", Some("9.0.0")), Some(miss.clone()), "it is in use");
    }
    let is_known = |number: u32| index.known("web", Some(&format!("1.0.{number}"))).is_some();
    let known: Vec<u32> = (0..150).filter(|number| is_known(*number)).collect();
    assert_eq!(known, (23..150).collect::<Vec<_>>(), "128 with the miss");
}

#[test]
fn only_charts_with_many_versions_are_large() {
    let versions = lines(4000, |n| format!("  - {{version: 1.0.{n}, urls: [x]}}\n"));
    let yaml = format!("entries:\n  small:\n  - {{version: 1.0.0, urls: [x]}}\n  large:\n{versions}");
    let index = read(yaml.as_bytes()).unwrap();
    assert_eq!(["small", "large", "missing"].map(|chart| index.is_large(chart)), [false, true, false]);
}

#[test]
fn yaml_bombs_are_rejected() {
    let laughs = "a: &a [x, x]\nb: &b [*a, *a]\nentries: {}\n";
    assert_rejected(laughs, "anchor");
    assert_rejected("entries: {web: [*missing]}", "alias");
    assert_rejected("entries: {web: [{<<: {version: 1.0.0}, urls: [x]}]}", "merge");
    let nested = "[".repeat(100) + &"]".repeat(100);
    let reason = read(format!("x: {nested}\nentries: {{}}\n").as_bytes()).unwrap_err().to_string();
    assert!(reason.contains("depth") || reason.contains("nest"), "{reason}");
    assert_rejected(&format!("entries:\n  web:\n{}", "  - {}\n".repeat(50_001)), "more than 50000 versions");
    let many: Vec<String> = (0..50_001).map(|n| format!("  c{n}: []\n")).collect();
    assert_rejected(&format!("entries:\n{}", many.concat()), "more than 50000 charts");
    assert_rejected("--- {}\n--- {}\n", "document");
    assert_rejected("<html>not found</html>", "mapping");
    assert_rejected("apiVersion: v1\n", "no `entries`");
    assert_rejected("", "no `entries`");
    assert!(read(b"\0").is_err());
}

#[test]
fn names_and_urls_that_are_too_long_are_skipped() {
    let (name, url) = ("n".repeat(300), "u".repeat(5000));
    let text = format!(
        "entries:\n  ? {name}\n  : [{{version: 1.0.0, urls: [x]}}]\n  web:\n  - {{version: 1.0.0, urls: [{url}]}}\n  - {{version: {name}, urls: [x]}}\n",
    );
    let index = read(text.as_bytes()).unwrap();
    assert_eq!(index.find(&name, None).unwrap(), FoundVersion::NoChart);
    assert_eq!(versions(&index, "web"), [""; 0]);
}

#[test]
fn the_memory_of_an_index_is_limited() {
    let url = "u".repeat(4000);
    let versions = |count: u32| lines(count, |n| format!("  - {{version: 1.0.{n}, urls: [{url}]}}\n"));
    assert_rejected(&format!("entries:\n  web:\n{}", versions(9000)), "more than 33554432 bytes");
    let index = read(format!("entries:\n  web:\n{}", versions(2000)).as_bytes()).unwrap();
    let before = index.memory_bytes();
    for number in 0..3 {
        let found = index.find("web", Some(&format!("1.0.{number}"))).unwrap();
        assert!(matches!(found, FoundVersion::Found(_)), "{number}");
    }
    assert!(index.resolved.is_empty(), "large entries are not kept");
    assert_eq!(index.memory_bytes(), before);
    let name = "n".repeat(250);
    let charts = lines(30_000, |n| format!("  {name}{n}: []\n"));
    assert_rejected(&format!("entries:\n{charts}"), "names of its charts are too long");
}

proptest! {
    #[test]
    fn parsing_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = read(&bytes);
    }

    #[test]
    fn yaml_like_text_does_not_panic(text in "(entries:\n)?[ \\-a-c:\\[\\]{}&*!|>\"'\n#?,]{0,200}") {
        let _ = read(text.as_bytes());
    }

    #[test]
    fn published_versions_are_found(
        charts in proptest::collection::btree_map(
            "[a-z][a-z0-9-]{0,10}", proptest::collection::vec("[0-9]{1,2}\\.[0-9]\\.[0-9]", 0..5), 0..8,
        ),
    ) {
        let entries: HashMap<_, Vec<_>> = charts
            .iter()
            .map(|(name, all)| (name, all.iter().map(|v| serde_json::json!({"version": v, "urls": ["x"]})).collect()))
            .collect();
        let yaml = serde_saphyr::to_string(&serde_json::json!({"entries": entries})).unwrap();
        let index = read(yaml.as_bytes()).unwrap();
        for (name, expected) in &charts {
            prop_assert_eq!(&versions(&index, name), expected);
        }
    }
}
