//! The crates of a program, as cargo resolves them for its package and target: with its features, and without the crates of
//! tests and build scripts. Procedural macros are included, because they write parts of the program.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{
    VERSION,
    cyclonedx::{Bom, Component},
};
use crate::{
    command::{command, output},
    dist::binaries,
};

/// The digests of crates by name and version. Crates of this repository have none.
type Checksums<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// Returns the SBOM of the program of a package.
pub fn bom(root: &Path, package: &str, program: &str) -> Result<Bom> {
    let target = binaries::target();
    let arguments = ["tree", "--locked", "--package", package, "--target", &target];
    let format = ["--edges", "normal", "--prefix", "depth", "--format", "\t{p}\t{l}"];
    let tree = output(command(root, "cargo", &[&arguments[..], &format].concat()))?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    parse(program, &tree, &checksums(&lock))
}

/// Builds the SBOM from lines such as `2<tab>serde v1.0.0<tab>MIT OR Apache-2.0`. The number is the depth in the tree; what a
/// crate depends on is printed once.
fn parse(program: &str, tree: &str, checksums: &Checksums<'_>) -> Result<Bom> {
    let mut bom = Bom::new(Component::new("application", program, VERSION).with_license("Apache-2.0"));
    let mut path: Vec<String> = Vec::new();
    for line in tree.lines() {
        let (depth, name, version, license) =
            fields(line).with_context(|| format!("`cargo tree` printed the line `{line}`"))?;
        if depth == 0 {
            path = vec![bom.subject()];
            continue;
        }
        ensure!(depth <= path.len(), "`cargo tree` printed `{line}` below no other line");
        let mut component = Component::new("library", name, version);
        // `A/B` is how older crates write `A OR B`.
        let license = license.replace(" / ", " OR ").replace('/', " OR ");
        if !license.is_empty() {
            component = component.with_license(&license);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component = component.with_purl(format!("pkg:cargo/{name}@{version}")).with_sha256(checksum);
        }
        let reference = bom.add(component);
        path.truncate(depth);
        bom.depend(&path[depth - 1], &reference);
        path.push(reference);
    }
    ensure!(!path.is_empty(), "`cargo tree` printed nothing");
    Ok(bom)
}

/// Returns depth, name, version and license of a line.
fn fields(line: &str) -> Option<(usize, &str, &str, &str)> {
    let (depth, rest) = line.split_once('\t')?;
    let (package, license) = rest.split_once('\t')?;
    // After the version follow folder and kind of the crate, if any.
    let (name, rest) = package.split_once(" v")?;
    let version = rest.split_whitespace().next()?;
    Some((depth.parse().ok()?, name, version, license.trim_end_matches(" (*)").trim()))
}

fn checksums(lock: &str) -> Checksums<'_> {
    let packages = lock.split("[[package]]").skip(1);
    let known = packages.filter_map(|package| {
        let field = |name: &str| {
            package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use serde_json::{Value, json};

    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"serde\",\n]\n\n\
                        [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"ab12\"\n";
    const TREE: &str = "0\tprogram v0.1.0 (/src/program)\tApache-2.0\n\
                        1\town v0.1.0 (/src/own)\tApache-2.0\n\
                        2\tserde v1.0.0\tMIT/Apache-2.0\n\
                        1\tserde v1.0.0\tMIT/Apache-2.0 (*)\n\
                        1\tmacros v0.1.0 (proc-macro) (/src/macros)\tApache-2.0\n";

    #[test]
    fn the_tree_becomes_components_and_dependencies() {
        let bom = parse("program", TREE, &checksums(LOCK)).unwrap();
        let document: Value = serde_json::from_str(&bom.json().unwrap()).unwrap();
        let components = document["components"].as_array().unwrap();
        let references: Vec<_> =
            components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references, ["macros@0.1.0", "own@0.1.0", "pkg:cargo/serde@1.0.0"]);
        assert_eq!(components[2]["hashes"], json!([{"alg": "SHA-256", "content": "ab12"}]));
        assert_eq!(components[2]["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(components[1].get("purl"), None, "the crates of this repository are not published");
        let dependencies = document["dependencies"].as_array().unwrap();
        let subject = dependencies.iter().find(|item| item["ref"] == format!("program@{VERSION}")).unwrap();
        assert_eq!(subject["dependsOn"], json!(["macros@0.1.0", "own@0.1.0", "pkg:cargo/serde@1.0.0"]));
        for invalid in ["", "0\tprogram", "2\tserde v1.0.0\tMIT\n"] {
            assert!(parse("program", invalid, &checksums(LOCK)).is_err(), "{invalid}");
        }
    }
}
