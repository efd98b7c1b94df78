//! Packages and renders the chart.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use semver::Version;

use crate::command::{command, output};

/// Files outside `deploy/chart` that are part of the chart. Tests and commands read them from `deploy`.
const FILES: [&str; 2] = ["deploy/crds.yaml", "deploy/rbac.yaml"];
const NAMESPACE: &str = "chandler-system";
/// The lines of values.yaml that a release replaces.
const REPOSITORY: &str = "\n  repository: chandler.dev/chandler\n";
const AGENT_REPOSITORY: &str = "\n    repository: chandler.dev/chandler-agent\n";

/// A packaged chart.
pub struct Chart<'a> {
    root: &'a Path,
    helm: &'a Path,
    archive: PathBuf,
}

impl<'a> Chart<'a> {
    /// Assembles the chart and packages it into `out`.
    pub fn package(
        root: &'a Path,
        helm: &'a Path,
        version: &Version,
        image: Option<&str>,
        out: &Path,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let assembled = folder.path().join("chandler");
        assemble(root, &assembled, image)?;
        let version = version.to_string();
        let (assembled, out_folder) = (assembled.to_string_lossy(), out.to_string_lossy());
        let arguments = ["package", &assembled, "--destination", &out_folder];
        let versions = ["--version", &version, "--app-version", &version];
        output(command(root, &helm.to_string_lossy(), &[&arguments[..], &versions].concat()))?;
        Ok(Self { root, helm, archive: out.join(format!("chandler-{version}.tgz")) })
    }

    /// Renders the chart with a values file. The schema is skipped, because values may be variables of clusterctl.
    pub fn render(&self, values: &str) -> Result<String> {
        let archive = self.archive.to_string_lossy();
        let arguments = ["template", "chandler", &archive, "--namespace", NAMESPACE];
        let values = ["--values", values, "--skip-schema-validation"];
        let helm = self.helm.to_string_lossy();
        let rendered = output(command(self.root, &helm, &[&arguments[..], &values].concat()))?;
        let without_sources = rendered.lines().filter(|line| !line.starts_with("# Source: "));
        Ok(without_sources.flat_map(|line| [line, "\n"]).collect())
    }
}

fn assemble(root: &Path, folder: &Path, image: Option<&str>) -> Result<()> {
    copy(&root.join("deploy/chart"), folder)?;
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    for name in FILES {
        let path = root.join(name);
        let name = path.file_name().context("a file has a name")?;
        fs::copy(&path, files.join(name)).with_context(|| format!("copying {}", path.display()))?;
    }
    if let Some(image) = image {
        let values = folder.join("values.yaml");
        let text = fs::read_to_string(&values)?;
        fs::write(&values, with_image(&text, image)?)?;
    }
    Ok(())
}

/// Returns the values with the repositories of a release: `image`, and `image` with a suffix for the agent.
fn with_image(values: &str, image: &str) -> Result<String> {
    let mut values = values.to_owned();
    for (line, repository) in [(REPOSITORY, image.to_owned()), (AGENT_REPOSITORY, format!("{image}-agent"))] {
        ensure!(values.contains(line), "values.yaml no longer has the line `{}`", line.trim());
        let (indented, _) = line.split_once(": ").context("a value has a name")?;
        values = values.replace(line, &format!("{indented}: {repository}\n"));
    }
    Ok(values)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_names_its_own_images() -> Result<()> {
        let values =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/values.yaml"))?;
        let released = with_image(&values, "registry.example/team/chandler")?;
        for line in [
            "  repository: registry.example/team/chandler",
            "    repository: registry.example/team/chandler-agent",
        ] {
            assert!(released.lines().any(|found| found == line), "{line}");
        }
        assert!(!released.contains("repository: chandler.dev"));
        assert!(with_image("image: {}\n", "registry.example/chandler").is_err());
        Ok(())
    }
}
