//! The example chart, carried in the program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_sandbox::chart;

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
    chart::write(folder, &FILES).with_context(|| format!("writing {}", folder.display()))
}
