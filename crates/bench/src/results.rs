//! Reads the results of earlier runs, to compare or draw them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::{
    placement::{self, Figures},
    plot,
    report::Results,
    scaling,
};

/// The content of a file that [`fleet`](crate::fleet()) or [`placement`](crate::placement()) has written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ResultFile {
    Fleet(Results),
    Placement { placement: Box<Figures> },
}

/// The results of several runs, each kind ordered by the number of clusters.
#[derive(Debug, Default)]
struct Runs {
    fleets: Vec<Results>,
    placements: Vec<Figures>,
}

impl Runs {
    fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut runs = Self::default();
        for path in paths {
            match read(path)? {
                ResultFile::Fleet(results) => runs.fleets.push(results),
                ResultFile::Placement { placement } => runs.placements.push(*placement),
            }
        }
        runs.fleets.sort_by_key(|results| results.clusters);
        runs.placements.sort_by_key(|figures| figures.clusters);
        Ok(runs)
    }
}

fn read(path: &Path) -> Result<ResultFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is no result of `bench fleet` or `bench placement`; their option --json writes one",
            path.display()
        )
    })
}

/// Prints how the CPU time of a release grows with the number of clusters, relative to the helm CLI.
pub fn compare_fleets(paths: &[PathBuf]) -> Result<()> {
    let Runs { fleets, placements } = Runs::read(paths)?;
    ensure!(
        placements.is_empty(),
        "only results of `bench fleet` can be compared; `bench plot` draws others"
    );
    print!("{}", scaling::table(&scaling::rows(&fleets)?));
    Ok(())
}

/// Draws the results of several runs over the number of clusters, as SVG.
pub fn plot_results(paths: &[PathBuf], svg: &Path) -> Result<()> {
    let Runs { fleets, placements } = Runs::read(paths)?;
    let panels = match (fleets.as_slice(), placements.as_slice()) {
        (fleets, []) => scaling::panels(fleets),
        ([], placements) => placement::panels(placements),
        _ => bail!("draw results of `bench fleet` and of `bench placement` separately"),
    };
    let drawing = plot::svg("Cost over the number of clusters", "clusters", &panels);
    std::fs::write(svg, drawing).with_context(|| format!("writing {}", svg.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn results_of_both_benchmarks_are_read_and_ordered() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let fleet = |clusters| Results { clusters, addons: 10, phases: Vec::new() };
        report::write(&path("40.json"), &fleet(40)).unwrap();
        report::write(&path("8.json"), &fleet(8)).unwrap();
        let figures = Figures { clusters: 7, change_p99_s: 0.125, ..Figures::default() };
        placement::write(&path("placement.json"), &figures).unwrap();

        let runs = Runs::read(&[path("40.json"), path("placement.json"), path("8.json")]).unwrap();
        let clusters: Vec<_> = runs.fleets.iter().map(|results| results.clusters).collect();
        assert_eq!(clusters, [8, 40]);
        assert_eq!(runs.placements, [figures]);

        let both = [path("8.json"), path("placement.json")];
        let error = plot_results(&both, &path("drawing.svg")).unwrap_err().to_string();
        assert!(error.contains("separately"), "{error}");
        let error = compare_fleets(&both).unwrap_err().to_string();
        assert!(error.contains("bench fleet"), "{error}");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.json");
        std::fs::write(&path, r#"{"items": []}"#).unwrap();
        let error = Runs::read(&[path]).unwrap_err().to_string();
        assert!(error.contains("--json writes one"), "{error}");
    }
}
