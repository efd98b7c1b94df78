//! Structured logs on standard error.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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

/// Starts logging at `level`, a level or a list such as `info,chandler_tool=debug`.
pub fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
    Ok(())
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    Ok(EnvFilter::try_new(format!("{QUIET},{level},{NEVER}"))?)
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

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
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filter(level).unwrap())
                .with_writer(move || writer.clone());
            tracing::subscriber::with_default(subscriber.finish(), || {
                tracing::warn!(target: "kube_client::client", "canary");
                tracing::error!(target: "kube_client::client::builder", "failed with status 500");
            });
            let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("canary") && text.contains("status 500"), "{level}: {text}");
        }
    }
}
