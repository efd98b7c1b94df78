//! Progress of long work, for a person to follow.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Reports every step that may take longer than two seconds.
pub trait Progress: Send + Sync {
    /// A step begins; `position` is `(3, 9)` for the third of nine.
    fn begin(&self, step: &str, position: Option<(usize, usize)>);
    /// How far the step that began last has come.
    fn advance(&self, text: &str);
    /// The step that began last is done.
    fn finish(&self, step: &str);
    /// Something worth knowing that is not a step.
    fn note(&self, text: &str);
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: Option<(usize, usize)>) {}
    fn advance(&self, _: &str) {}
    fn finish(&self, _: &str) {}
    fn note(&self, _: &str) {}
}

/// A spinner with the elapsed time on a terminal, plain lines elsewhere.
pub fn display() -> Box<dyn Progress> {
    if stderr().is_terminal() { Box::new(Spinner::default()) } else { Box::new(Lines::default()) }
}

fn label(step: &str, position: Option<(usize, usize)>) -> String {
    match position {
        Some((index, total)) => format!("{step} ({index} of {total})"),
        None => step.to_owned(),
    }
}

/// One line when a step begins and one when it ends, for logs and pipes.
#[derive(Debug, Default)]
pub struct Lines {
    began: Mutex<Vec<(String, Instant)>>,
    printed: Mutex<Option<Instant>>,
}

/// How often [`Lines`] prints how far a step has come.
const PAUSE: Duration = Duration::from_secs(30);

impl Progress for Lines {
    fn begin(&self, step: &str, position: Option<(usize, usize)>) {
        eprintln!("{} …", label(step, position));
        if let Ok(mut began) = self.began.lock() {
            began.push((step.to_owned(), Instant::now()));
        }
        if let Ok(mut printed) = self.printed.lock() {
            *printed = Some(Instant::now());
        }
    }

    fn advance(&self, text: &str) {
        let Ok(mut printed) = self.printed.lock() else { return };
        if printed.is_none_or(|printed| printed.elapsed() >= PAUSE) {
            eprintln!("  {text}");
            *printed = Some(Instant::now());
        }
    }

    fn finish(&self, step: &str) {
        let elapsed = self.began.lock().ok().and_then(|mut began| {
            let index = began.iter().rposition(|(name, _)| name == step)?;
            Some(began.swap_remove(index).1.elapsed())
        });
        if let Some(elapsed) = elapsed.filter(|elapsed| *elapsed >= Duration::from_secs(2)) {
            eprintln!("{step}: done after {:.1} s", elapsed.as_secs_f64());
        }
    }

    fn note(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// A spinner that shows the running step and how long it has taken.
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

impl Progress for Spinner {
    fn begin(&self, step: &str, position: Option<(usize, usize)>) {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let label = label(step, position);
        if let Ok(mut kept) = self.label.lock() {
            kept.clone_from(&label);
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

    fn note(&self, text: &str) {
        match self.bar.lock().ok().as_deref() {
            Some(Some(bar)) => bar.suspend(|| eprintln!("{text}")),
            _ => eprintln!("{text}"),
        }
    }
}
