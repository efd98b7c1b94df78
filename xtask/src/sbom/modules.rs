//! The Go modules of the Helm driver, with the standard library.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::{
    VERSION,
    cyclonedx::{Bom, Component},
};
use crate::{
    go::modules::{self, Module, STANDARD_LIBRARY},
    licenses,
};

/// Returns the SBOM of the driver.
pub fn bom(root: &Path, program: &str) -> Result<Bom> {
    let modules = modules::of_driver(root)?;
    let licenses = licenses::of_modules(&modules)?;
    let standard_library = library("stdlib", &modules::go_version(root)?).with_license("BSD-3-Clause");
    let mut bom = Bom::new(Component::new("application", program, VERSION).with_license("Apache-2.0"));
    for (path, module) in &modules {
        let reference = match licenses.get(path.as_str()) {
            Some(license) => bom.add(library(path, &module.version).with_license(license)),
            None => bom.subject(),
        };
        for imported in &module.imports {
            let component = match imported.as_str() {
                STANDARD_LIBRARY => standard_library.clone(),
                imported => library(imported, version(modules.get(imported), imported)?)
                    .with_license(licenses.get(imported).context("every module has a license")?),
            };
            let imported = bom.add(component);
            bom.depend(&reference, &imported);
        }
    }
    Ok(bom)
}

fn version<'a>(module: Option<&'a Module>, path: &str) -> Result<&'a str> {
    Ok(&module.with_context(|| format!("`go list` does not list {path}"))?.version)
}

fn library(path: &str, version: &str) -> Component {
    Component::new("library", path, version).with_purl(format!("pkg:golang/{path}@{version}"))
}
