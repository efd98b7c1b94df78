//! Forwards the log lines of a process to this process' log, with the release that they are about.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::ChildStderr,
};

const KEPT_LINES: usize = 10;

/// The last lines a process wrote, for the message when it does not start.
#[derive(Clone, Debug, Default)]
pub struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, line: String) {
        if let Ok(mut lines) = self.0.lock() {
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    pub fn joined(&self) -> String {
        self.0.lock().map(|lines| Vec::from(lines.clone()).join("; ")).unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    release: String,
    #[serde(default)]
    error: String,
}

/// Reads the process's standard error until it closes.
pub fn forward(stderr: Option<ChildStderr>, pid: u32) -> LastLines {
    let kept = LastLines::default();
    if let Some(stderr) = stderr {
        let kept = kept.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                emit(&line, pid);
                kept.push(line);
            }
        });
    }
    kept
}

fn emit(text: &str, pid: u32) {
    macro_rules! event {
        ($level:ident, $line:expr) => {
            tracing::$level!(
                target: "chandler_tool::driver",
                pid,
                operation = $line.operation,
                cluster = $line.cluster,
                namespace = $line.namespace,
                release = $line.release,
                error = $line.error,
                "{}",
                $line.msg
            )
        };
    }
    let Ok(line) = serde_json::from_str::<Line>(text) else {
        // Not a log line of the driver's own: a crash of its runtime, most likely.
        tracing::warn!(target: "chandler_tool::driver", pid, "{text}");
        return;
    };
    match line.level.as_str() {
        "ERROR" => event!(error, line),
        "WARN" => event!(warn, line),
        "INFO" => event!(info, line),
        _ => event!(debug, line),
    }
}
