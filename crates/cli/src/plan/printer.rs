//! Prints a plan while it is made.

use std::{
    io::{self, ErrorKind, Write as _},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use chandler_core::change_plan::{ChangePlan, IgnoredObject, PlanPart};

use super::text;
use crate::{
    output::{Screen, StructuredFormat, strip_control_characters},
    progress::Progress,
};

/// Prints each part of a plan as soon as it is known. JSON and YAML are printed at the end.
pub struct Printer<'a> {
    progress: &'a Progress,
    summary: bool,
    output: Option<StructuredFormat>,
    screen: Screen,
    /// Why a part could not be written. Nothing is written after it.
    failed: Mutex<Option<io::Error>>,
}

impl<'a> Printer<'a> {
    pub fn new(progress: &'a Progress, summary: bool, output: Option<StructuredFormat>) -> Self {
        Self { progress, summary, output, screen: Screen::detect(), failed: Mutex::default() }
    }

    /// Prints a part.
    pub fn part(&self, part: PlanPart<'_>) {
        match (self.output, self.summary) {
            (Some(_), _) => {}
            (None, true) => self.write(&text::summary_part(part, self.screen)),
            (None, false) => self.write(&text::part(part, self.screen)),
        }
    }

    /// Prints the rest of the plan.
    pub fn finish(self, plan: ChangePlan) -> Result<ChangePlan> {
        self.progress.hidden_while(|| report_ignored(&plan.ignored));
        match self.output {
            Some(format) => self.write(&format.text(&plan)?),
            None => self.write(&text::counts(&plan.summary)),
        }
        match self.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            // A reader that has closed the output, such as `head`, has read enough.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing the plan"),
            _ => Ok(plan),
        }
    }

    fn write(&self, text: &str) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some() || text.is_empty() {
            return;
        }
        let written = self.progress.hidden_while(|| {
            let mut output = io::stdout().lock();
            output.write_all(text.as_bytes()).and_then(|()| output.flush())
        });
        *failed = written.err();
    }
}

/// Names the objects that are not planned. Those of Chandler could change the plan, so that it fails.
fn report_ignored(ignored: &[IgnoredObject]) {
    let names = |may_matter: bool| {
        let matching = ignored.iter().filter(|one| one.may_matter == may_matter);
        let names = matching.map(|one| format!("{} {}", one.kind, strip_control_characters(&one.name)));
        Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
    };
    if let Some(names) = names(false) {
        eprintln!("ignored: {names}");
    }
    if let Some(names) = names(true) {
        eprintln!(
            "error: {names}: plans are about HelmChartProxies, ExtensionInstances, AddonPolicies, Extensions, \
             ExtensionCatalogs and Sources"
        );
    }
}
