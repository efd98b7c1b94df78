//! Shows the progress of slow commands on a terminal.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time};

/// Commands that finish earlier show no progress.
const DELAY: Duration = Duration::from_secs(2);
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// Shows the latest reported message on standard error. Removes it when dropped.
pub struct Progress {
    line: Arc<Mutex<Line>>,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Line {
    text: String,
    shown: bool,
    finished: bool,
}

impl Progress {
    /// Must be called within a Tokio runtime.
    pub fn start() -> Self {
        let line: Arc<Mutex<Line>> = Arc::default();
        let task = std::io::stderr().is_terminal().then(|| tokio::spawn(show(line.clone())));
        Self { line, task }
    }

    /// Runs `print` while no message is shown. The next one is shown below what it prints.
    pub fn hidden_while<T>(&self, print: impl FnOnce() -> T) -> T {
        let mut line = lock(&self.line);
        if std::mem::take(&mut line.shown) {
            eprint!("\r\x1b[K");
        }
        print()
    }

    /// Stops showing messages and clears the line.
    pub fn finish(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let mut line = lock(&self.line);
        line.finished = true;
        if std::mem::take(&mut line.shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl chandler_view::Progress for Progress {
    fn report(&self, message: String) {
        lock(&self.line).text = message;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

async fn show(line: Arc<Mutex<Line>>) {
    time::sleep(DELAY).await;
    loop {
        {
            let mut line = lock(&line);
            if line.finished {
                return;
            }
            if !line.text.is_empty() {
                eprint!("\r\x1b[K{}", line.text);
                // Progress is best effort.
                let _ = std::io::stderr().flush();
                line.shown = true;
            }
        }
        time::sleep(REFRESH_INTERVAL).await;
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
