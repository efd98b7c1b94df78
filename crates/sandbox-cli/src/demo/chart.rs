//! The example charts, embedded in the binary.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_sandbox::chart;

/// The name and content of a file of a chart.
type File = (&'static str, &'static str);

macro_rules! files {
    ($chart:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../examples/charts/", $chart, "/", $name)))),+]
    };
}

/// An example chart.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    name: &'static str,
    files: &'static [File],
}

pub const HELLO: Chart = Chart {
    name: "hello",
    files: files![
        "hello":
        "Chart.yaml",
        "values.yaml",
        "templates/configmap.yaml",
        "templates/deployment.yaml",
        "templates/service.yaml",
        "templates/serviceaccount.yaml",
    ],
};
pub const NETWORK: Chart = Chart {
    name: "network",
    files: files!["network": "Chart.yaml", "values.yaml", "templates/daemonset.yaml"],
};
pub const CLOUD_PROVIDER: Chart = Chart {
    name: "cloud-provider",
    files: files!["cloud-provider": "Chart.yaml", "values.yaml", "templates/deployment.yaml"],
};

impl Chart {
    /// Writes the chart to a subfolder of `parent`.
    pub fn write(self, parent: &Path) -> Result<PathBuf> {
        let folder = parent.join(self.name);
        chart::write(&folder, self.files).with_context(|| format!("writing {}", folder.display()))
    }
}
