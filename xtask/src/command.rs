//! Runs other programs, and says what failed.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};

/// A command in `folder`.
pub fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command
}

/// Runs to the end; anything but success is an error.
pub fn run(mut command: Command) -> Result<()> {
    let shown = shown(&command);
    eprintln!("xtask: {shown}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`; is it installed and on the PATH?"))?;
    ensure!(status.success(), "`{shown}` failed with {status}");
    Ok(())
}

/// Runs to the end; returns its exit code.
pub fn status(mut command: Command) -> Result<i32> {
    let shown = shown(&command);
    eprintln!("xtask: {shown}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`; is it installed and on the PATH?"))?;
    status.code().with_context(|| format!("`{shown}` ended by a signal"))
}

/// Runs to the end and returns what it wrote to standard output.
pub fn output(mut command: Command) -> Result<String> {
    let shown = shown(&command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{shown}`; is it installed and on the PATH?"))?;
    if !output.status.success() {
        bail!("`{shown}` failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
