use proptest::prelude::*;

use super::*;

fn read(yaml: &[u8]) -> Result<Index, IndexError> {
    Index::read(yaml, tempfile::tempfile().unwrap())
}

fn says(yaml: &str, hint: &str) {
    let reason = read(yaml.as_bytes()).unwrap_err().to_string();
    assert!(reason.contains(hint), "{reason:?} does not say {hint:?}");
}

fn versions(index: &Index, chart: &str) -> Vec<String> {
    let versions = index.versions(chart).unwrap();
    versions.iter().flat_map(|all| all.iter()).map(|entry| entry.version.clone()).collect()
}

#[test]
fn charts_are_found_and_what_is_unusable_is_left_out() {
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
    assert!(index.versions("missing").unwrap().is_none());
    let web = index.versions("web").unwrap().unwrap();
    assert_eq!(web[0].urls, ["web-2.0.0.tgz"], "mirrors are not needed");
    assert_eq!(
        web[0].digest.as_deref(),
        Some("12345e67"),
        "a digest is text, even if it looks like a number"
    );
    assert!(read(b"apiVersion: v1\nentries: {}\n").is_ok());
    assert!(read(b"{\"entries\": {\"web\": [{\"version\": \"1.0.0\", \"urls\": [\"x\"]}]}}").is_ok());
}

#[test]
fn bombs_are_refused() {
    let laughs = "a: &a [x, x]\nb: &b [*a, *a]\nentries: {}\n";
    says(laughs, "anchor");
    says("entries: {web: [*missing]}", "alias");
    says("entries: {web: [{<<: {version: 1.0.0}, urls: [x]}]}", "merge");
    let nested = "[".repeat(100) + &"]".repeat(100);
    let reason = read(format!("x: {nested}\nentries: {{}}\n").as_bytes()).unwrap_err().to_string();
    assert!(reason.contains("depth") || reason.contains("nest"), "{reason}");
    says(&format!("entries:\n  web:\n{}", "  - {}\n".repeat(50_001)), "more than 50000 versions");
    let many: Vec<String> = (0..50_001).map(|n| format!("  c{n}: []\n")).collect();
    says(&format!("entries:\n{}", many.concat()), "more than 50000 charts");
    says("--- {}\n--- {}\n", "document");
    says("<html>not found</html>", "mapping");
    says("apiVersion: v1\n", "no `entries`");
    says("", "no `entries`");
    assert!(read(b"\0").is_err());
}

#[test]
fn what_is_too_long_is_left_out() {
    let (name, url) = ("n".repeat(300), "u".repeat(5000));
    let text = format!(
        "entries:\n  ? {name}\n  : [{{version: 1.0.0, urls: [x]}}]\n  web:\n  - {{version: 1.0.0, urls: [{url}]}}\n  - {{version: {name}, urls: [x]}}\n",
    );
    let index = read(text.as_bytes()).unwrap();
    assert!(index.versions(&name).unwrap().is_none());
    assert_eq!(versions(&index, "web"), [""; 0]);
}

proptest! {
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = read(&bytes);
    }

    #[test]
    fn yaml_like_text_does_not_panic(text in "(entries:\n)?[ \\-a-c:\\[\\]{}&*!|>\"'\n#?,]{0,200}") {
        let _ = read(text.as_bytes());
    }

    #[test]
    fn what_is_published_is_found(
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
