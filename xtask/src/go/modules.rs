//! The modules whose packages are linked into the Helm driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::go;
use crate::command::output;

/// Lists each package with its module and its imports. Packages of the standard library have no module.
const FORMAT: &str = "{{.ImportPath}}\t{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{else}}\t\t{{end}}\t{{.Dir}}\t\
                      {{join .Imports \" \"}}";

/// A module, and what the build uses of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Empty for the driver's own module.
    pub version: String,
    pub folder: PathBuf,
    /// The folders of the packages that are linked.
    pub packages: BTreeSet<PathBuf>,
    /// The paths of the modules that these packages import. [`STANDARD_LIBRARY`] is one of them.
    pub imports: BTreeSet<String>,
}

/// Stands for the path of the module of packages that have none.
pub const STANDARD_LIBRARY: &str = "";

/// Returns the modules of the driver by path, without the standard library.
pub fn of_driver(root: &Path) -> Result<BTreeMap<String, Module>> {
    parse(&output(go(root, "tools/helm", &["list", "-deps", "-f", FORMAT, "."]))?)
}

/// Returns the version of Go, such as `1.26.1`.
pub fn go_version(root: &Path) -> Result<String> {
    let version = output(go(root, "tools/helm", &["env", "GOVERSION"]))?;
    let version = version.trim();
    Ok(version.strip_prefix("go").with_context(|| format!("{version} is not a version of Go"))?.to_owned())
}

fn parse(listed: &str) -> Result<BTreeMap<String, Module>> {
    let mut modules: BTreeMap<String, Module> = BTreeMap::new();
    let mut module_of = BTreeMap::new();
    let mut imports = Vec::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[package, module, version, folder, package_folder, imported] = fields.as_slice() else {
            anyhow::bail!("`go list` printed the line `{line}`, which does not have six fields");
        };
        module_of.insert(package, module);
        if module == STANDARD_LIBRARY {
            continue;
        }
        ensure!(!folder.is_empty(), "the module {module} is not in Go's module cache: run `go mod download`");
        let entry = modules.entry(module.to_owned()).or_default();
        version.clone_into(&mut entry.version);
        entry.folder = folder.into();
        entry.packages.insert(package_folder.into());
        imports.push((module, imported));
    }
    ensure!(!modules.is_empty(), "`go list` printed no module");
    for (module, imported) in imports {
        let imported = imported.split_whitespace().filter_map(|package| module_of.get(package).copied());
        let others = imported.filter(|imported| *imported != module).map(str::to_owned);
        modules.entry(module.to_owned()).or_default().imports.extend(others);
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn packages_are_grouped_by_module() {
        let listed = "fmt\t\t\t\t/go/src/fmt\terrors io\n\
                      errors\t\t\t\t/go/src/errors\t\n\
                      a.example/x/sub\ta.example/x\tv1.2.0\t/m/x\t/m/x/sub\tfmt\n\
                      a.example/x\ta.example/x\tv1.2.0\t/m/x\t/m/x\ta.example/x/sub errors\n\
                      own\town\t\t/src\t/src\ta.example/x fmt\n";
        let modules = parse(listed).unwrap();
        assert_eq!(modules.keys().collect::<Vec<_>>(), ["a.example/x", "own"]);
        let dependency = &modules["a.example/x"];
        assert_eq!((dependency.version.as_str(), dependency.packages.len()), ("v1.2.0", 2));
        assert_eq!(dependency.imports, BTreeSet::from([STANDARD_LIBRARY.to_owned()]));
        assert_eq!(
            modules["own"].imports,
            BTreeSet::from([STANDARD_LIBRARY.to_owned(), "a.example/x".to_owned()])
        );
        assert!(parse("").is_err());
        assert!(parse("a line\n").is_err());
        assert!(parse("a.example/x\ta.example/x\tv1\t\t\t\n").is_err(), "not downloaded");
    }
}
