//! The Go modules of the Helm driver, with the standard library.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

use super::{
    VERSION,
    cyclonedx::{Bom, Component},
};
use crate::{
    go::modules::{self, STANDARD_LIBRARY},
    licenses,
};

/// Returns the SBOM of the driver.
pub fn bom(root: &Path, program: &str) -> Result<Bom> {
    let modules = modules::of_driver(root)?;
    let licenses = licenses::of_modules(&modules)?;
    let mut bom = Bom::new(Component::new("application", program, VERSION).with_license("Apache-2.0"));
    let standard_library = library("stdlib", &modules::go_version(root)?).with_license("BSD-3-Clause");
    let mut references = BTreeMap::from([(STANDARD_LIBRARY, bom.add(standard_library))]);
    for (path, module) in &modules {
        let reference = match licenses.get(path.as_str()) {
            Some(license) => bom.add(library(path, &module.version).with_license(license)),
            None => bom.subject(),
        };
        references.insert(path, reference);
    }
    for (path, module) in &modules {
        for imported in &module.imports {
            bom.depend(&references[path.as_str()], &references[imported.as_str()]);
        }
    }
    Ok(bom)
}

fn library(path: &str, version: &str) -> Component {
    Component::new("library", path, version).with_purl(format!("pkg:golang/{path}@{version}"))
}
