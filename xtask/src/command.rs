//! Runs other programs. Errors contain the command line.

use std::{
    io::{self, BufRead as _, BufReader, PipeReader},
    path::Path,
    process::{Command, Output},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
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

/// Runs a command to completion and prints what it prints. `read` gets each line.
pub fn run_lines(mut command: Command, mut read: impl FnMut(&str)) -> Result<()> {
    /// How long to wait for a line before looking whether the command has ended.
    const PAUSE: Duration = Duration::from_millis(200);
    /// How long to read lines after the command has ended.
    const LEFT_BEHIND: Duration = Duration::from_secs(5);
    let line = command_line(&command);
    eprintln!("xtask: {line}");
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{line}`; is it installed and on the PATH?"))?;
    // It has the ends of the pipe that would keep it open.
    drop(command);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || send_lines(reader, &sender));
    // A process that was left behind may keep the pipe open, and go on to print.
    let mut ended = None;
    while ended.is_none_or(|at: Instant| at.elapsed() < LEFT_BEHIND) {
        if ended.is_none() && child.try_wait()?.is_some() {
            ended = Some(Instant::now());
        }
        match lines.recv_timeout(PAUSE) {
            Ok(printed) => {
                println!("{printed}");
                read(&printed);
            }
            Err(RecvTimeoutError::Timeout) if ended.is_none() => {}
            Err(_) => break,
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "`{line}` failed with {status}");
    Ok(())
}

fn send_lines(reader: PipeReader, lines: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
        if lines.send(line).is_err() {
            return;
        }
        bytes.clear();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_until_the_command_has_ended() {
        let start = Instant::now();
        let mut lines = Vec::new();
        // A process that is left behind has the pipe open.
        let script = "echo one; echo two >&2; sleep 60 & exit 3";
        let result = run_lines(command(Path::new("/"), "sh", &["-c", script]), |line| {
            lines.push(line.to_owned());
        });
        assert!(result.unwrap_err().to_string().contains("exit status: 3"));
        assert_eq!(lines, ["one", "two"]);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
