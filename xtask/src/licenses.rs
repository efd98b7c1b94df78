//! Checks the licenses of the Go modules that are linked into the Helm driver. cargo-deny checks those of the crates.
//!
//! Every license file of a module counts, and so does every one between its root and a package that is linked, because modules
//! contain forks of other projects. All licenses found must be on the list of `deny.toml`, and an unknown text fails.

mod texts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::go::modules::{self, Module};

/// Returns an error that names every module with a license that `deny.toml` does not allow.
pub fn check(root: &Path) -> Result<()> {
    let allowed = allowed(&fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?)?;
    let modules = modules::of_driver(root)?;
    let mut refused = Vec::new();
    let mut checked = 0;
    for (path, module) in modules.iter().filter(|(_, module)| !module.version.is_empty()) {
        checked += 1;
        match of_module(module) {
            Ok(found) => {
                refused.extend(not_allowed(&found, &allowed).map(|license| format!("{path}: {license}")));
            }
            Err(error) => refused.push(format!("{path}: {error:#}")),
        }
    }
    ensure!(
        refused.is_empty(),
        "Go modules with licenses that deny.toml does not allow; replace them, or extend the list:\n{}",
        refused.join("\n")
    );
    eprintln!("xtask: the licenses of {checked} Go modules are allowed");
    Ok(())
}

/// Returns the SPDX identifiers of a module's licenses.
pub fn of_module(module: &Module) -> Result<BTreeSet<&'static str>> {
    let mut found = BTreeSet::new();
    for file in files(module)? {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let licenses = texts::identify(&text);
        ensure!(!licenses.is_empty(), "{} is no known license", file.display());
        found.extend(licenses);
    }
    ensure!(!found.is_empty(), "{} contains no license file", module.folder.display());
    Ok(found)
}

fn not_allowed<'a>(found: &'a BTreeSet<&str>, allowed: &'a [String]) -> impl Iterator<Item = &'a str> {
    found.iter().copied().filter(|license| !allowed.iter().any(|allowed| allowed == license))
}

/// Returns the license files of the module and of the folders above its linked packages.
fn files(module: &Module) -> Result<BTreeSet<PathBuf>> {
    let mut folders = BTreeSet::from([module.folder.as_path()]);
    for package in &module.packages {
        folders.extend(package.ancestors().take_while(|folder| *folder != module.folder));
    }
    let mut found = BTreeSet::new();
    for folder in folders {
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_file() && is_license(&entry.file_name().to_string_lossy()) {
                found.insert(entry.path());
            }
        }
    }
    Ok(found)
}

/// Returns whether a file contains a license of code. `.docs` is the extension of the license of the documentation.
fn is_license(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.split_once(['.', '-']).unwrap_or((&name, ""));
    ["license", "licence", "copying", "unlicense"].contains(&stem) && !["docs", "go"].contains(&extension)
}

/// Returns the licenses that `deny.toml` allows.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let (_, list) = deny.split_once("\nallow = [").context("deny.toml has no list `allow`")?;
    let (list, _) = list.split_once("\n]").context("the list `allow` of deny.toml does not end")?;
    let names = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "the list `allow` of deny.toml is empty");
    Ok(names)
}

/// Returns the licenses as one SPDX expression.
pub fn expression(licenses: &BTreeSet<&str>) -> String {
    licenses.iter().copied().collect::<Vec<_>>().join(" AND ")
}

/// Returns the licenses of every module by its path, without the driver's own.
pub fn of_modules(modules: &BTreeMap<String, Module>) -> Result<BTreeMap<&str, String>> {
    let others = modules.iter().filter(|(_, module)| !module.version.is_empty());
    others
        .map(|(path, module)| {
            Ok((path.as_str(), expression(&of_module(module).with_context(|| path.clone())?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn the_list_of_deny_toml_is_read() {
        let deny = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml")).unwrap();
        let allowed = allowed(&deny).unwrap();
        for license in ["Apache-2.0", "MIT", "MPL-2.0", "Zlib"] {
            assert!(allowed.iter().any(|allowed| allowed == license), "{license}: {allowed:?}");
        }
        assert!(super::allowed("[licenses]\n").is_err());
        let found = BTreeSet::from(["GPL-3.0-only", "MIT"]);
        assert_eq!(not_allowed(&found, &allowed).collect::<Vec<_>>(), ["GPL-3.0-only"]);
    }

    #[test]
    fn license_files_are_recognized_by_name() {
        for (name, expected) in [
            ("LICENSE", true),
            ("license.txt", true),
            ("LICENCE.md", true),
            ("COPYING", true),
            ("LICENSE-MIT", true),
            ("LICENSE.libyaml", true),
            ("LICENSE.docs", false),
            ("license.go", false),
            ("LICENSES", false),
            ("NOTICE", false),
        ] {
            assert_eq!(is_license(name), expected, "{name}");
        }
    }

    #[test]
    fn a_fork_inside_a_module_counts_and_other_folders_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let module = |package: &str| Module {
            folder: folder.path().to_owned(),
            packages: BTreeSet::from([folder.path().join(package)]),
            ..Module::default()
        };
        fs::create_dir_all(folder.path().join("fork/inner")).unwrap();
        assert!(of_module(&module("fork/inner")).is_err(), "no license");
        write("LICENSE", "Apache License, Version 2.0");
        write("fork/COPYING", "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007");
        write("examples/LICENSE", "Everything is forbidden.");
        assert_eq!(of_module(&module("fork/inner")).unwrap(), BTreeSet::from(["Apache-2.0", "GPL-3.0-only"]));
        assert_eq!(expression(&of_module(&module("")).unwrap()), "Apache-2.0");
        let unknown = of_module(&module("examples")).unwrap_err().to_string();
        assert!(unknown.contains("is no known license"), "{unknown}");
    }
}
