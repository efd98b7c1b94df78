//! What a check came to.

use std::fmt::Write as _;

use serde::Serialize;

use crate::output::{Colour, Screen};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    Ok,
    /// Worth knowing; nothing is broken.
    Warning,
    /// Someone has to do something.
    Problem,
    /// It could not be looked at.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, message: message.into(), next: None }
    }

    pub fn unknown(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Unknown, message: message.into(), next: None }
    }

    pub fn warning(check: &'static str, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, message: message.into(), next: Some(next.into()) }
    }

    pub fn problem(check: &'static str, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Problem, message: message.into(), next: Some(next.into()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub problems: usize,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn of(findings: Vec<Finding>) -> Self {
        let problems = findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count();
        Self { problems, findings }
    }

    pub fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        for Finding { check, verdict, message, next } in &self.findings {
            let (mark, colour) = match verdict {
                Verdict::Ok => ("ok", Colour::Green),
                Verdict::Warning => ("warning", Colour::Yellow),
                Verdict::Problem => ("PROBLEM", Colour::Red),
                Verdict::Unknown => ("unknown", Colour::Yellow),
            };
            let mark = screen.paint(&format!("{mark:<8}"), Some(colour));
            let _ = writeln!(text, "{mark} {check}: {message}");
            if let Some(next) = next {
                let _ = writeln!(text, "         → {next}");
            }
        }
        text
    }
}
