//! Structured logs on standard error, at a level that can be changed while the process runs.

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

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Libraries that tell each step of theirs, unless asked otherwise.
const QUIET: &str = "pubgrub=warn,kube_client::client::builder=error";
/// Never: the client writes whole answers that it cannot read or that say no, be they Secrets or quote one.
const NEVER: &str = "kube_client::client=off";
/// The log of the package tool, as it is folded into ours.
const TOOL: &str = "chandler_tool::driver";

/// The level of the log. Clones share it.
#[derive(Clone, Debug)]
pub struct LogLevel {
    text: Arc<Mutex<String>>,
    filter: reload::Handle<Targets, Registry>,
    tool: watch::Sender<&'static str>,
}

impl LogLevel {
    /// A level, or a list such as `info,chandler_tool=debug`.
    pub fn get(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on. What cannot be read changes nothing.
    pub fn set(&self, level: &str) -> Result<()> {
        let filter = parse(level)?;
        self.tool.send_replace(of_tool(&filter));
        self.filter.reload(filter).context("changing the log level")?;
        let before = std::mem::replace(
            &mut *self.text.lock().unwrap_or_else(PoisonError::into_inner),
            level.to_owned(),
        );
        tracing::info!(before, now = level, "log level changed");
        Ok(())
    }

    /// What the package tool has to log, now and later.
    pub fn tool(&self) -> watch::Receiver<&'static str> {
        self.tool.subscribe()
    }
}

/// Starts logging at `level`, a level or a list such as `info,chandler_tool=debug`.
pub fn start(level: &str, format: LogFormat) -> Result<LogLevel> {
    let filter = parse(level)?;
    let tool = watch::channel(of_tool(&filter)).0;
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
    let advice = || {
        format!(
            "`{level}` is no log level: give one of error, warn, info, debug, trace, off, or a list such as \
             info,chandler_tool=debug"
        )
    };
    // A word alone would be taken for a target whose every step is wanted: it is a misspelt level, most likely.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    if !level.split(',').all(|directive| directive.contains('=') || is_level(directive.trim())) {
        bail!(advice());
    }
    format!("{QUIET},{level},{NEVER}").parse().with_context(advice)
}

/// The driver knows no more than these.
fn of_tool(filter: &Targets) -> &'static str {
    let levels = [(Level::DEBUG, "debug"), (Level::INFO, "info"), (Level::WARN, "warn")];
    let level = levels.into_iter().find(|(level, _)| filter.would_enable(TOOL, level));
    level.map_or("error", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_of_the_api_server_are_never_written() {
        for level in ["trace", "kube_client=trace", "info,kube_client::client=trace"] {
            let written = Written::default();
            let writer = written.clone();
            let lines = fmt::layer().with_writer(move || writer.clone()).with_filter(parse(level).unwrap());
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
                tracing::warn!(target: "kube_client::client", "canary");
                tracing::error!(target: "kube_client::client::builder", "failed with status 500");
            });
            let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("canary") && text.contains("status 500"), "{level}: {text}");
        }
    }

    #[test]
    fn the_tool_logs_what_is_wanted_of_it() {
        for (level, tool) in [
            ("info", "info"),
            ("TRACE", "debug"),
            ("info,chandler_tool=debug", "debug"),
            ("debug,chandler_tool=warn", "warn"),
            ("off", "error"),
        ] {
            assert_eq!(of_tool(&parse(level).unwrap()), tool, "{level}");
        }
    }

    #[test]
    fn what_is_no_level_is_refused_with_words() {
        for level in ["loud", "", "info,", "info,chandler_tool=loud"] {
            let error = parse(level).unwrap_err();
            assert!(error.to_string().contains("give one of error, warn"), "{error}");
        }
    }
}
