use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;

use super::*;

type Files<const N: usize> = [(&'static str, &'static [u8]); N];

/// Returns the files of a package by name.
fn unpacked(packed: &PackedFiles) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(&packed.content[..]));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 0);
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().to_str().unwrap().to_owned(), content)
    });
    entries.collect()
}

fn names(packed: &PackedFiles) -> Vec<String> {
    unpacked(packed).into_keys().collect()
}

#[test]
fn the_digest_depends_on_paths_and_contents_only() {
    let files: Files<2> = [("a.yaml", b"kind: A\n"), ("folder/b.json", b"{}\n")];
    let packed = PackedFiles::manifests(files).unwrap();
    // A different digest would add a revision to every release of every bundle.
    assert_eq!(packed.digest.hex(), "ee73ece5d2cbb9f615eac9a90231ba00afc9e653f8673489b65923db7e4843ea");
    let reversed = files.iter().rev().copied();
    assert_eq!(PackedFiles::manifests(reversed).unwrap(), packed);
    let renamed = PackedFiles::manifests([("a.yml", files[0].1), files[1]]).unwrap();
    let changed = PackedFiles::manifests([("a.yaml", &b"kind: B\n"[..]), files[1]]).unwrap();
    assert!(renamed.digest != packed.digest && changed.digest != packed.digest);
}

#[test]
fn a_bundle_contains_manifests_only() {
    let files: Files<4> = [
        ("README.md", b"text"),
        (".github/ci.yaml", b"on: push"),
        ("b/c.yml", b"kind: C"),
        ("a.yaml", b"kind: A"),
    ];
    let packed = PackedFiles::manifests(files).unwrap();
    assert_eq!(names(&packed), ["a.yaml", "b/c.yml"]);
    assert_eq!(packed.format, PackageFormat::manifests());
    let none = PackedFiles::manifests([("README.md", &b"text"[..])]).unwrap_err();
    assert!(none.to_string().contains("no manifests"), "{none}");
}

#[test]
fn a_chart_is_packed_without_ignored_files() {
    let files: Files<5> = [
        (".helmignore", b"*.bak\nci/\n"),
        ("Chart.yaml", b"name: web"),
        ("ci/values.yaml", b"{}"),
        ("templates/a.yaml", b"kind: A"),
        ("templates/a.yaml.bak", b"kind: A"),
    ];
    let packed = PackedFiles::chart(files).unwrap();
    assert_eq!(names(&packed), ["chart/.helmignore", "chart/Chart.yaml", "chart/templates/a.yaml"]);
    assert!(packed.format.is_helm_chart());
    let none = PackedFiles::chart([("a.yaml", &b"kind: A"[..])]).unwrap_err();
    assert!(none.to_string().contains("no Chart.yaml"), "{none}");
    let invalid = PackedFiles::chart([("Chart.yaml", &b""[..]), (".helmignore", &b"[a"[..])]).unwrap_err();
    assert!(invalid.to_string().contains(".helmignore, line 1"), "{invalid}");
}

#[test]
fn large_files_and_long_names_are_packed() {
    let content: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let long = format!("{}a.yaml", "folder/".repeat(40));
    let packed =
        PackedFiles::manifests([("a.yaml", &content[..]), (long.as_str(), &b"kind: A"[..])]).unwrap();
    let files = unpacked(&packed);
    assert_eq!(files["a.yaml"], content);
    assert_eq!(files.len(), 2);
    let outside = PackedFiles::chart([("Chart.yaml", &b"name: web"[..]), ("../a.yaml", &b"kind: A"[..])]);
    assert!(outside.is_err(), "the name is outside of the archive");
}

#[test]
fn a_package_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let packed = PackedFiles::manifests([("a.yaml", &b"kind: A\n"[..])]).unwrap();
    let first = packed.clone().store(&store, claim(), "source fleet/apps").unwrap();
    assert_eq!(std::fs::read(first.path()).unwrap(), packed.content);
    let second = packed.store(&store, claim(), "source fleet/apps").unwrap();
    assert_eq!((first.path(), first.format()), (second.path(), &PackageFormat::manifests()));
    let chart = PackedFiles::chart([("Chart.yaml", &b"name: web"[..])]).unwrap();
    assert!(chart.store(&store, claim(), "source fleet/apps").unwrap().format().is_helm_chart());
}

fn claim() -> Claim {
    Claim::new("fleet", "https://git.example/apps", None)
}
