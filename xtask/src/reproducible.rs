//! Builds the binaries of a release twice, from two clones in different folders, and compares them byte for byte.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::{
    command::{command, output, run as run_command},
    dist::binaries::{self, Build},
    go, sha256,
};

/// The names of the folders have different lengths, because a path that gets into a binary moves everything behind it.
const FOLDERS: [&str; 2] = ["first", "the-second-build"];

#[derive(Debug, Args)]
pub struct ReproducibleArgs {
    /// Target triple [default: that of a release]; any other than musl is built for without a check that it is static
    #[arg(long)]
    target: Option<String>,
    /// Folder for both builds, which needs some gigabytes and must not exist [default: a temporary one]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Builds the last commit twice. It takes as long as two releases.
pub fn run(root: &Path, arguments: &ReproducibleArgs) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = match &arguments.folder {
        Some(folder) => {
            let folder = root.join(folder);
            fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
            folder
        }
        None => temporary.path().to_owned(),
    };
    let target = arguments.target.clone().unwrap_or_else(binaries::target);
    let mut outputs = Vec::new();
    let mut source = root.to_owned();
    for name in FOLDERS {
        let clone = folder.join(name);
        let (from, to) = (source.to_string_lossy(), clone.to_string_lossy());
        run_command(command(root, "git", &["clone", "--quiet", "--no-hardlinks", &from, &to]))?;
        let out = clone.join("dist");
        let build = Build {
            root: &clone,
            target_folder: clone.join("target"),
            target: target.clone(),
            // With a shared one, Go would copy the packages of the first build.
            go_cache: Some(clone.join("go-cache")),
        };
        build.chandler(&out)?;
        build.agent(&out)?;
        outputs.push(out);
        // The repository may get another commit while the first clone is built.
        source = clone;
    }
    // Both builds read these folders, so that their names would not make a difference.
    let go_modules = output(go::go(root, "tools/helm", &["env", "GOMODCACHE"]))?;
    let shared = [binaries::cargo_home()?.to_string_lossy().into_owned(), go_modules.trim().to_owned()];
    compare(&outputs[0], &outputs[1], &shared)
}

/// Returns an error that names every file that differs or contains one of the names, and prints the digests of the others.
fn compare(first: &Path, second: &Path, names: &[String]) -> Result<()> {
    let mut problems = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(first)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "{} is empty", first.display());
    for file in files {
        let [first, second] = [first, second].map(|folder| folder.join(&file));
        let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
        let bytes = read(&first)?;
        let found = names.iter().find(|name| contains(&bytes, name.as_bytes()));
        if let Some(at) = first_difference(&bytes, &read(&second)?) {
            problems.push(format!("{} and {} differ at byte {at}", first.display(), second.display()));
        } else if let Some(name) = found {
            problems.push(format!("{} contains {name}, a folder of this machine", first.display()));
        } else {
            println!("{}  {}", sha256::digest(&bytes), file.display());
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}\nkeep both with --folder, and compare them with diffoscope or `cmp -l`", problems.join("\n"))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

fn first_difference(first: &[u8], second: &[u8]) -> Option<usize> {
    let common = first.iter().zip(second).position(|(first, second)| first != second);
    common.or_else(|| (first.len() != second.len()).then(|| first.len().min(second.len())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn a_difference_names_file_and_place() {
        for (first, second, expected) in
            [("", "", None), ("ab", "ab", None), ("ab", "ac", Some(1)), ("a", "ab", Some(1))]
        {
            assert_eq!(first_difference(first.as_bytes(), second.as_bytes()), expected, "{first} {second}");
        }
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = FOLDERS.map(|name| folder.path().join(name));
        for build in [&first, &second] {
            fs::create_dir(build).unwrap();
            assert!(compare(&first, &second, &[]).is_err(), "nothing was built");
            fs::write(build.join("same"), "at /home/user/.cargo/x").unwrap();
        }
        compare(&first, &second, &["/other".to_owned()]).unwrap();
        let error = compare(&first, &second, &["/home/user/.cargo".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("first/same contains /home/user/.cargo"), "{error}");
        fs::write(first.join("program"), "one").unwrap();
        assert!(compare(&first, &second, &[]).is_err(), "missing in the second build");
        fs::write(second.join("program"), "two").unwrap();
        let error = compare(&first, &second, &[]).unwrap_err().to_string();
        assert!(error.contains("the-second-build/program differ at byte 0"), "{error}");
    }
}
