//! The SBOMs of `cargo xtask sbom` are complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use chandler_e2e::{packaging::xtask, programs};
use chandler_sandbox::testing;
use serde_json::Value;

use crate::documents::{document, root};

/// The programs, and the packages of those that are written in Rust.
const PROGRAMS: [(&str, Option<&str>); 3] =
    [("chandler", Some("chandler-cli")), ("chandler-agent", Some("chandler-agent")), ("chandler-helm", None)];

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn string<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// Checks the fields that CycloneDX requires, and those without which a scanner cannot use the document.
fn check_fields(sbom: &Value, program: &str) {
    assert_eq!((string(sbom, "bomFormat"), string(sbom, "specVersion")), ("CycloneDX", "1.6"));
    assert_eq!(sbom["version"], 1);
    let serial = string(sbom, "serialNumber").strip_prefix("urn:uuid:").unwrap();
    let lengths: Vec<usize> = serial.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{serial}");
    assert!(serial.chars().all(|c| c == '-' || c.is_ascii_hexdigit() && !c.is_uppercase()), "{serial}");
    let subject = &sbom["metadata"]["component"];
    assert_eq!((string(subject, "type"), string(subject, "name")), ("application", program));
    assert_eq!(string(subject, "version"), env!("CARGO_PKG_VERSION"));
    let mut references = BTreeSet::from([string(subject, "bom-ref")]);
    for component in sbom["components"].as_array().unwrap() {
        assert_eq!(string(component, "type"), "library");
        assert!(!string(component, "name").is_empty() && !string(component, "version").is_empty());
        assert!(!string(&component["licenses"][0], "expression").is_empty(), "{component}");
        assert!(references.insert(string(component, "bom-ref")), "twice: {component}");
    }
    let mut described = BTreeSet::new();
    for dependency in sbom["dependencies"].as_array().unwrap() {
        described.insert(string(dependency, "ref"));
        for on in dependency["dependsOn"].as_array().unwrap() {
            assert!(references.contains(on.as_str().unwrap()), "{on} is no component");
        }
    }
    assert_eq!(described, references, "the dependencies of every component are listed");
}

/// Returns name, version and component of every crate or module.
fn components(sbom: &Value) -> BTreeMap<(String, String), &Value> {
    let all = sbom["components"].as_array().unwrap().iter();
    all.map(|component| {
        let field = |name| string(component, name).to_owned();
        ((field("name"), field("version")), component)
    })
    .collect()
}

/// Every crate that cargo links into the program is listed, and no other, with the digest of Cargo.lock.
fn check_crates(sbom: &Value, package: &str) {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let arguments = ["tree", "--locked", "--package", package, "--edges", "normal", "--target", &target];
    let tree = output(env!("CARGO"), &[&arguments[..], &["--prefix", "none"]].concat());
    let mut linked = BTreeSet::new();
    for line in tree.lines().skip(1).filter(|line| !line.is_empty()) {
        let (name, rest) = line.split_once(" v").unwrap();
        linked.insert((name.to_owned(), rest.split_whitespace().next().unwrap().to_owned()));
    }
    let listed = components(sbom);
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), linked);
    assert!(linked.len() > 50, "{linked:?}");
    let lock = document("Cargo.lock");
    for ((name, version), component) in listed {
        let entry = format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
        let (_, entry) =
            lock.split_once(&entry).unwrap_or_else(|| panic!("no {name} {version} in Cargo.lock"));
        let entry = entry.split("\n\n").next().unwrap();
        let Some(checksum) = entry.lines().find_map(|line| line.strip_prefix("checksum = ")) else {
            assert!(name.starts_with("chandler-") && component.get("purl").is_none(), "{component}");
            continue;
        };
        assert_eq!(string(&component["hashes"][0], "content"), checksum.trim_matches('"'), "{name}");
        assert_eq!(string(component, "purl"), format!("pkg:cargo/{name}@{version}"));
    }
}

/// Every module that Go recorded in the driver is listed, and no other, with the standard library.
fn check_modules(sbom: &Value) {
    let recorded = output("go", &["version", "-m", programs::package_tool()]);
    let (_, go) = recorded.lines().next().unwrap().rsplit_once(": go").unwrap();
    let mut linked = BTreeSet::from([("stdlib".to_owned(), go.to_owned())]);
    for line in recorded.lines() {
        if let ["dep", module, version, ..] = *line.split_whitespace().collect::<Vec<_>>() {
            linked.insert((module.to_owned(), version.to_owned()));
        }
    }
    assert!(linked.len() > 50, "{recorded}");
    let listed = components(sbom);
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), linked);
    for ((module, version), component) in listed {
        assert_eq!(string(component, "purl"), format!("pkg:golang/{module}@{version}"));
    }
}

fn read(folder: &Path, program: &str) -> String {
    fs::read_to_string(folder.join(format!("{program}.cdx.json"))).unwrap()
}

#[tokio::test]
async fn the_sboms_list_every_crate_and_module_of_the_programs() {
    let [first, second] =
        [testing::fresh_dir("sbom").await.unwrap(), testing::fresh_dir("sbom").await.unwrap()];
    for folder in [&first, &second] {
        xtask(&["sbom", "--out", &folder.to_string_lossy()]).await;
    }
    for (program, package) in PROGRAMS {
        let text = read(&first, program);
        assert_eq!(text, read(&second, program), "{program}: equal inputs give equal documents");
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR").trim_end_matches("/crates/e2e")), "{program}");
        let sbom: Value = serde_json::from_str(&text).unwrap();
        check_fields(&sbom, program);
        match package {
            Some(package) => check_crates(&sbom, package),
            None => check_modules(&sbom),
        }
    }
}
