//! Says what takes so long, on a terminal only.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time};

/// Who waits longer wants to know why.
const QUIET: Duration = Duration::from_secs(2);
/// How often what is told is renewed.
const OFTEN: Duration = Duration::from_millis(200);

/// What is being done. It is told once that has taken a while, also while nothing new happens.
pub struct Progress {
    line: Arc<Mutex<Line>>,
    teller: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Line {
    text: String,
    shown: bool,
    ended: bool,
}

impl Progress {
    /// To be called where a runtime is.
    pub fn start() -> Self {
        let line: Arc<Mutex<Line>> = Arc::default();
        let teller = std::io::stderr().is_terminal().then(|| tokio::spawn(show(line.clone())));
        Self { line, teller }
    }

    /// Leaves no trace.
    pub fn end(&mut self) {
        if let Some(teller) = self.teller.take() {
            teller.abort();
        }
        let mut line = lock(&self.line);
        line.ended = true;
        if std::mem::take(&mut line.shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl chandler_view::Progress for Progress {
    fn report(&self, what: String) {
        lock(&self.line).text = what;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

async fn show(line: Arc<Mutex<Line>>) {
    time::sleep(QUIET).await;
    loop {
        {
            let mut line = lock(&line);
            if line.ended {
                return;
            }
            if !line.text.is_empty() {
                eprint!("\r\x1b[K{}", line.text);
                // Nothing depends on whether it is seen.
                let _ = std::io::stderr().flush();
                line.shown = true;
            }
        }
        time::sleep(OFTEN).await;
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
