//! The example chart, carried in the program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../../examples/charts/hello/", $name)))),+]
    };
}

const FILES: [(&str, &str); 6] = files![
    "Chart.yaml",
    "values.yaml",
    "templates/configmap.yaml",
    "templates/deployment.yaml",
    "templates/service.yaml",
    "templates/serviceaccount.yaml",
];

/// Writes the chart's folder.
pub fn write(folder: &Path) -> Result<PathBuf> {
    for (name, text) in FILES {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(folder.to_owned())
}
