//! The command line, parsed by hand: a library for it would be a considerable part of this small binary.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The text of `--help`.
pub const HELP: &str = "\
Connects the API server of this cluster to Chandler's management cluster

It dials the hubs in its configuration and serves exactly one target through these connections.

Usage: chandler-agent [OPTIONS]

Options:
      --config FILE        Configuration file [default: /etc/chandler-agent/agent.yaml]
      --log-format FORMAT  Format of the log on standard error: plain or json [default: plain]
      --verbose            Also log what is of interest only when something does not work
  -h, --help               Print help
  -V, --version            Print version
";

const DEFAULT_CONFIG: &str = "/etc/chandler-agent/agent.yaml";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Arguments {
    Run(RunArguments),
    Help,
    Version,
}

/// The options of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct RunArguments {
    pub config: PathBuf,
    pub log_format: LogFormat,
    pub verbose: bool,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Plain,
    Json,
}

/// Why the command line cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    #[error("unknown argument `{0}`; see `chandler-agent --help`")]
    Unknown(String),
    #[error("`{0}` needs a value; see `chandler-agent --help`")]
    MissingValue(&'static str),
    #[error("`{0}` takes no value; see `chandler-agent --help`")]
    UnexpectedValue(&'static str),
    #[error("`--log-format` is `plain` or `json`, not `{0}`")]
    UnknownFormat(String),
}

/// Parses the arguments without the name of the program.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, ArgumentError> {
    let mut run =
        RunArguments { config: PathBuf::from(DEFAULT_CONFIG), log_format: LogFormat::Plain, verbose: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (text.as_ref(), None),
        };
        let mut value_of =
            |name| value.clone().or_else(|| arguments.next()).ok_or(ArgumentError::MissingValue(name));
        match name {
            "--config" => run.config = value_of("--config")?.into(),
            "--log-format" => run.log_format = log_format(&value_of("--log-format")?)?,
            "--verbose" if value.is_some() => return Err(ArgumentError::UnexpectedValue("--verbose")),
            "--verbose" => run.verbose = true,
            "--help" | "-h" => return Ok(Arguments::Help),
            "--version" | "-V" => return Ok(Arguments::Version),
            _ => return Err(ArgumentError::Unknown(text.into_owned())),
        }
    }
    Ok(Arguments::Run(run))
}

fn log_format(value: &OsStr) -> Result<LogFormat, ArgumentError> {
    match value.to_string_lossy().as_ref() {
        "plain" => Ok(LogFormat::Plain),
        "json" => Ok(LogFormat::Json),
        other => Err(ArgumentError::UnknownFormat(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str, log_format: LogFormat, verbose: bool) -> Arguments {
        Arguments::Run(RunArguments { config: config.into(), log_format, verbose })
    }

    #[test]
    fn arguments_are_parsed() {
        let rows: [(&[&str], Result<Arguments, ArgumentError>); 11] = [
            (&[], Ok(run(DEFAULT_CONFIG, LogFormat::Plain, false))),
            (&["--config", "a.yaml"], Ok(run("a.yaml", LogFormat::Plain, false))),
            (&["--config=a=b.yaml"], Ok(run("a=b.yaml", LogFormat::Plain, false))),
            (&["--log-format", "json", "--verbose"], Ok(run(DEFAULT_CONFIG, LogFormat::Json, true))),
            (&["--log-format=xml"], Err(ArgumentError::UnknownFormat("xml".to_owned()))),
            (&["--config"], Err(ArgumentError::MissingValue("--config"))),
            (&["--verbose=yes"], Err(ArgumentError::UnexpectedValue("--verbose"))),
            (&["--token", "secret"], Err(ArgumentError::Unknown("--token".to_owned()))),
            (&["--help"], Ok(Arguments::Help)),
            (&["--config", "a.yaml", "-h"], Ok(Arguments::Help)),
            (&["-V"], Ok(Arguments::Version)),
        ];
        for (arguments, expected) in rows {
            assert_eq!(parse(arguments.iter().map(OsString::from)), expected, "{arguments:?}");
        }
    }

    #[test]
    fn the_help_names_every_option() {
        for option in ["--config", "--log-format", "--verbose", "--help", "--version"] {
            assert!(HELP.contains(option), "{option}");
        }
    }
}
