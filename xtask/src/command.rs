//! Runs other programs. Errors contain the command line.

use std::{
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};

/// Returns a command with the working directory `folder`.
pub fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command
}

/// Runs a command to completion. Any exit status but success is an error.
pub fn run(mut command: Command) -> Result<()> {
    let line = command_line(&command);
    eprintln!("xtask: {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`; is it installed and on the PATH?"))?;
    ensure!(status.success(), "`{line}` failed with {status}");
    Ok(())
}

/// Runs a command to completion and returns its exit code.
pub fn status(mut command: Command) -> Result<i32> {
    let line = command_line(&command);
    eprintln!("xtask: {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`; is it installed and on the PATH?"))?;
    status.code().with_context(|| format!("`{line}` was terminated by a signal"))
}

/// Runs a command to completion and returns its standard output.
pub fn output(command: Command) -> Result<String> {
    let (line, output) = capture(command)?;
    if !output.status.success() {
        bail!("`{line}` failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command to completion and returns everything that it prints.
pub fn all_output(command: Command) -> Result<String> {
    let (line, output) = capture(command)?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    ensure!(output.status.success(), "`{line}` failed with {}:\n{printed}", output.status);
    Ok(printed.into_owned())
}

/// Runs a command to completion. Returns its command line, its exit status and what it prints.
fn capture(mut command: Command) -> Result<(String, Output)> {
    let line = command_line(&command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{line}`; is it installed and on the PATH?"))?;
    Ok((line, output))
}

fn command_line(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
