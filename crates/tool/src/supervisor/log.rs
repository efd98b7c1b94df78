//! Forwards the log lines of a process to this process' log, with the release that they are about.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::ChildStderr,
};
use tokio_util::sync::CancellationToken;

const KEPT_LINES: usize = 10;
/// How long the last lines of a process that has exited may take.
const LAST_LINES_LIMIT: Duration = Duration::from_millis(500);
/// What the runtime of Go prints when the kernel refuses to give it more memory. Many lines about its state follow.
const OUT_OF_MEMORY: [&str; 2] = ["out of memory", "cannot allocate memory"];

/// The last lines a process wrote, for the message when it does not start or has ended.
#[derive(Clone, Debug, Default)]
pub struct LastLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    out_of_memory: Arc<AtomicBool>,
    closed: CancellationToken,
}

impl LastLines {
    fn push(&self, line: String) {
        if OUT_OF_MEMORY.iter().any(|text| line.contains(text)) {
            self.out_of_memory.store(true, Ordering::Release);
        }
        if let Ok(mut lines) = self.lines.lock() {
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    pub fn joined(&self) -> String {
        self.lines.lock().map(|lines| Vec::from(lines.clone()).join("; ")).unwrap_or_default()
    }

    /// Returns whether a process that has exited has written that it got no more memory.
    pub async fn is_out_of_memory(&self) -> bool {
        // Either way it is known well enough.
        let _ = tokio::time::timeout(LAST_LINES_LIMIT, self.closed.cancelled()).await;
        self.out_of_memory.load(Ordering::Acquire)
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
            kept.closed.cancel();
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
