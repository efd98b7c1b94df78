//! Structured logs on standard error, with a level that can be changed at run time.

use std::{
    io::IsTerminal as _,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use tokio::sync::watch;
use tracing::Level;
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Levels of verbose libraries, which the configured level can override.
const DEFAULT_DIRECTIVES: &str = "pubgrub=warn,kube_client::client::builder=error";
/// Cannot be overridden: the Kubernetes client logs the whole body of error responses and of responses that it cannot parse, which
/// may contain Secrets, and the ssh client logs what servers send. Both return their errors as well.
const FORCED_DIRECTIVES: &str = "kube_client::client=off,russh=off";
/// The target of log lines of the package tool.
const TOOL_TARGET: &str = "chandler_tool::driver";

/// The log level. Clones share it.
#[derive(Clone, Debug)]
pub struct LogLevel {
    text: Arc<Mutex<String>>,
    filter: reload::Handle<Targets, Registry>,
    tool: watch::Sender<&'static str>,
}

impl LogLevel {
    /// Returns the level, or a list such as `info,chandler_tool=debug`.
    pub fn get(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the level. An invalid level is an error and changes nothing.
    pub fn set(&self, level: &str) -> Result<()> {
        let filter = parse(level)?;
        self.tool.send_replace(tool_level(&filter));
        self.filter.reload(filter).context("changing the log level")?;
        let old = std::mem::replace(
            &mut *self.text.lock().unwrap_or_else(PoisonError::into_inner),
            level.to_owned(),
        );
        tracing::info!(old, new = level, "log level changed");
        Ok(())
    }

    /// Returns the level of the package tool, which follows changes.
    pub fn tool(&self) -> watch::Receiver<&'static str> {
        self.tool.subscribe()
    }
}

/// Starts logging at `level`, a level or a list such as `info,chandler_tool=debug`.
pub fn start(level: &str, format: LogFormat) -> Result<LogLevel> {
    let filter = parse(level)?;
    let tool = watch::channel(tool_level(&filter)).0;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(LogLevel { text: Arc::new(Mutex::new(level.to_owned())), filter: handle, tool })
}

fn parse(level: &str) -> Result<Targets> {
    let usage = || {
        format!(
            "invalid log level `{level}`: use error, warn, info, debug, trace, off, or a list such as \
             info,chandler_tool=debug"
        )
    };
    // `Targets` would parse an unknown level as a target with level trace.
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    if !level.split(',').all(|directive| directive.contains('=') || is_level(directive.trim())) {
        bail!(usage());
    }
    format!("{DEFAULT_DIRECTIVES},{level},{FORCED_DIRECTIVES}").parse().with_context(usage)
}

/// Returns the level of the package tool, which supports only these levels.
fn tool_level(filter: &Targets) -> &'static str {
    let levels = [(Level::DEBUG, "debug"), (Level::INFO, "info"), (Level::WARN, "warn")];
    let level = levels.into_iter().find(|(level, _)| filter.would_enable(TOOL_TARGET, level));
    level.map_or("error", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn responses_of_the_api_server_are_never_logged() {
        for level in ["trace", "kube_client=trace", "info,kube_client::client=trace"] {
            let buffer = Buffer::default();
            let writer = buffer.clone();
            let lines = fmt::layer().with_writer(move || writer.clone()).with_filter(parse(level).unwrap());
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
                tracing::warn!(target: "kube_client::client", "canary");
                tracing::error!(target: "kube_client::client::builder", "failed with status 500");
            });
            let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("canary") && text.contains("status 500"), "{level}: {text}");
        }
    }

    #[test]
    fn the_level_of_the_tool_follows_the_filter() {
        for (level, tool) in [
            ("info", "info"),
            ("TRACE", "debug"),
            ("info,chandler_tool=debug", "debug"),
            ("debug,chandler_tool=warn", "warn"),
            ("off", "error"),
        ] {
            assert_eq!(tool_level(&parse(level).unwrap()), tool, "{level}");
        }
    }

    #[test]
    fn invalid_levels_are_rejected() {
        for level in ["loud", "", "info,", "info,chandler_tool=loud"] {
            let error = parse(level).unwrap_err();
            assert!(error.to_string().contains("use error, warn"), "{error}");
        }
    }
}
