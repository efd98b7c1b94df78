//! The results of checks.

use std::fmt::Write as _;

use serde::Serialize;

use crate::output::{Color, Screen};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    Ok,
    /// Works, and could be improved.
    Hint,
    /// Should be fixed, but breaks nothing.
    Warning,
    /// Must be fixed by the user.
    Problem,
    /// The check failed.
    Unknown,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    pub message: String,
    /// What the user should do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, message: message.into(), next_step: None }
    }

    pub fn hint(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { check, severity: Severity::Hint, message: message.into(), next_step: Some(next_step.into()) }
    }

    pub fn unknown(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, severity: Severity::Unknown, message: message.into(), next_step: None }
    }

    pub fn warning(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Warning,
            message: message.into(),
            next_step: Some(next_step.into()),
        }
    }

    pub fn problem(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Problem,
            message: message.into(),
            next_step: Some(next_step.into()),
        }
    }
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub problems: usize,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn new(findings: Vec<Finding>) -> Self {
        let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
        Self { problems, findings }
    }

    pub fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        for Finding { check, severity, message, next_step } in &self.findings {
            let (label, color) = match severity {
                Severity::Ok => ("ok", Color::Green),
                Severity::Hint => ("hint", Color::Green),
                Severity::Warning => ("warning", Color::Yellow),
                Severity::Problem => ("PROBLEM", Color::Red),
                Severity::Unknown => ("unknown", Color::Yellow),
            };
            let label = screen.paint(&format!("{label:<8}"), Some(color));
            let _ = writeln!(text, "{label} {check}: {message}");
            if let Some(next_step) = next_step {
                let _ = writeln!(text, "         → {next_step}");
            }
        }
        text
    }
}
