//! Progress of long-running steps, for display in a terminal or a log.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Receives the progress of steps that may take longer than two seconds.
pub trait ProgressReporter: Send + Sync {
    /// Reports that a step has started. `position` is `(3, 9)` for the third step of nine.
    fn begin(&self, step: &str, position: Option<(usize, usize)>);
    /// Reports the progress of the step that started last.
    fn advance(&self, text: &str);
    /// Reports that a step is done.
    fn finish(&self, step: &str);
    /// Reports that a step has ended without a result.
    fn abandon(&self, _step: &str) {}
    /// Reports a message that is not a step.
    fn note(&self, text: &str);
}

/// Discards all progress.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl ProgressReporter for Silent {
    fn begin(&self, _: &str, _: Option<(usize, usize)>) {}
    fn advance(&self, _: &str) {}
    fn finish(&self, _: &str) {}
    fn note(&self, _: &str) {}
}

/// Returns a [`Spinner`] if standard error is a terminal, [`Lines`] otherwise.
pub fn display() -> Box<dyn ProgressReporter> {
    if stderr().is_terminal() { Box::new(Spinner::default()) } else { Box::new(Lines::default()) }
}

fn label(step: &str, position: Option<(usize, usize)>) -> String {
    match position {
        Some((index, total)) => format!("{step} ({index} of {total})"),
        None => step.to_owned(),
    }
}

/// Prints a line when a step starts and another when it is done, for logs and pipes.
#[derive(Debug, Default)]
pub struct Lines {
    started: Mutex<Vec<(String, Instant)>>,
    printed: Mutex<Option<Instant>>,
}

/// The minimum time between two lines about the progress of one step.
const PRINT_INTERVAL: Duration = Duration::from_secs(30);

impl ProgressReporter for Lines {
    fn begin(&self, step: &str, position: Option<(usize, usize)>) {
        eprintln!("{} …", label(step, position));
        if let Ok(mut started) = self.started.lock() {
            started.push((step.to_owned(), Instant::now()));
        }
        if let Ok(mut printed) = self.printed.lock() {
            *printed = Some(Instant::now());
        }
    }

    fn advance(&self, text: &str) {
        let Ok(mut printed) = self.printed.lock() else { return };
        if printed.is_none_or(|printed| printed.elapsed() >= PRINT_INTERVAL) {
            eprintln!("  {text}");
            *printed = Some(Instant::now());
        }
    }

    fn finish(&self, step: &str) {
        let elapsed = self.started.lock().ok().and_then(|mut started| {
            let index = started.iter().rposition(|(name, _)| name == step)?;
            Some(started.swap_remove(index).1.elapsed())
        });
        if let Some(elapsed) = elapsed.filter(|elapsed| *elapsed >= Duration::from_secs(2)) {
            eprintln!("{step}: done after {:.1} s", elapsed.as_secs_f64());
        }
    }

    fn note(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// Shows the running step and its elapsed time in a spinner.
#[derive(Debug, Default)]
pub struct Spinner {
    bar: Mutex<Option<ProgressBar>>,
    label: Mutex<String>,
}

impl Spinner {
    fn replace(&self, next: Option<ProgressBar>) {
        if let Ok(mut bar) = self.bar.lock() {
            if let Some(previous) = bar.take() {
                previous.finish_and_clear();
            }
            *bar = next;
        }
    }
}

impl ProgressReporter for Spinner {
    fn begin(&self, step: &str, position: Option<(usize, usize)>) {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let label = label(step, position);
        if let Ok(mut current) = self.label.lock() {
            current.clone_from(&label);
        }
        let bar = ProgressBar::new_spinner().with_style(style).with_message(label);
        bar.enable_steady_tick(Duration::from_millis(120));
        self.replace(Some(bar));
    }

    fn advance(&self, text: &str) {
        let label = self.label.lock().map(|label| label.clone()).unwrap_or_default();
        if let Some(bar) = self.bar.lock().ok().as_deref().and_then(Option::as_ref) {
            bar.set_message(format!("{label}: {text}"));
        }
    }

    fn finish(&self, step: &str) {
        let elapsed = self.bar.lock().ok().and_then(|bar| bar.as_ref().map(ProgressBar::elapsed));
        self.replace(None);
        if let Some(elapsed) = elapsed.filter(|elapsed| *elapsed >= Duration::from_secs(2)) {
            eprintln!("✓ {step} ({:.1} s)", elapsed.as_secs_f64());
        }
    }

    fn abandon(&self, _: &str) {
        self.replace(None);
    }

    fn note(&self, text: &str) {
        match self.bar.lock().ok().as_deref() {
            Some(Some(bar)) => bar.suspend(|| eprintln!("{text}")),
            _ => eprintln!("{text}"),
        }
    }
}
