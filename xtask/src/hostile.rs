//! Measures the time and memory within which hostile inputs are refused.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::{
    build,
    command::{command, output, run as run_command},
    go,
};

const DOCUMENT: &str = "docs/security.md";
const BEGIN: &str = "<!-- hostile inputs: begin -->\n";
/// How the table was measured.
const INTRODUCTION: &str = "Measured with the release build, beside nothing else.\n\n";
const END: &str = "<!-- hostile inputs: end -->";

/// Runs all hostile inputs with the release build, and prints the table or writes it into the documentation. Fails if an input is
/// not refused.
pub fn run(root: &Path, write: bool) -> Result<()> {
    // Together with the binaries, which it shares its dependencies with: alone, cargo would compile them with other features.
    let packages = ["chandler-cli", "chandler-sandbox-cli", "chandler-hostile"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let arguments = ["build", "--locked", "--release"].into_iter().chain(packages);
    run_command(command(root, "cargo", &arguments.collect::<Vec<_>>()))?;
    let folder = build::target(root).join("release");
    let driver = folder.join("chandler-helm");
    go::driver(root, &driver)?;
    let mut hostile = command(root, &folder.join("chandler-hostile").to_string_lossy(), &[]);
    hostile.env("CHANDLER_TOOL", &driver);
    let table = output(hostile)?;
    if !write {
        print!("{table}");
        return Ok(());
    }
    let path = root.join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {DOCUMENT}"))?;
    fs::write(&path, with_table(&text, &table)?).with_context(|| format!("writing {DOCUMENT}"))
}

/// Returns the document with another table between the markers.
fn with_table(text: &str, table: &str) -> Result<String> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    match parts {
        Some((before, after)) => Ok(format!("{before}{BEGIN}{INTRODUCTION}{table}{END}{after}")),
        None => bail!("{DOCUMENT} has no markers for the table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_replaced() {
        let text = format!("a\n{BEGIN}old\n{END}\nb\n");
        let replaced = with_table(&text, "new\n").unwrap();
        assert_eq!(replaced, format!("a\n{BEGIN}{INTRODUCTION}new\n{END}\nb\n"));
        assert_eq!(with_table(&replaced, "new\n").unwrap(), replaced);
        assert!(with_table("a\n", "new\n").is_err());
    }
}
