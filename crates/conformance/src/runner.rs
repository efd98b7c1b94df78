//! Runs the cases, a few at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_tool::generated::template::RenderRequest;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    Ability, Case, CaseError, CaseReport, Environment, Outcome, Report, context::Context, tool::Tool, topics,
};

/// How many cases run at a time.
const PARALLEL: usize = 4;
/// No case may hold up the rest.
const CASE_LIMIT: Duration = Duration::from_secs(150);

/// Runs every case whose name contains the filter, and says how each ended as it does.
pub async fn run(
    environment: Environment,
    filter: Option<&str>,
    on_case: impl Fn(&CaseReport),
) -> Result<Report, CaseError> {
    let environment = Arc::new(environment);
    let tool = Tool::new(environment.tool.clone());
    let abilities = Abilities::of(&tool).await?;
    let slots = Arc::new(Semaphore::new(PARALLEL));
    let mut running = JoinSet::new();
    let chosen = topics::all().filter(|case| filter.is_none_or(|text| case.name.contains(text)));
    for (index, case) in chosen.enumerate() {
        if let Some(missing) = case.needs.filter(|needed| !abilities.have(*needed)) {
            let reason = format!("the tool does not have {}", missing.word());
            running.spawn(async move { (index, reported(case, Outcome::Skipped(reason), Duration::ZERO)) });
            continue;
        }
        let (environment, tool, slots) = (environment.clone(), tool.clone(), slots.clone());
        running.spawn(async move {
            let _slot = slots.acquire().await;
            let started = Instant::now();
            let outcome = match attempt(case, environment, tool).await {
                Ok(()) => Outcome::Passed,
                Err(error) => Outcome::Failed(error.to_string()),
            };
            (index, reported(case, outcome, started.elapsed()))
        });
    }
    let mut cases = Vec::new();
    while let Some(joined) = running.join_next().await {
        let (index, report) = joined.map_err(|error| CaseError::Host(error.into()))?;
        on_case(&report);
        cases.push((index, report));
    }
    cases.sort_by_key(|(index, _)| *index);
    Ok(Report { cases: cases.into_iter().map(|(_, report)| report).collect() })
}

async fn attempt(case: &Case, environment: Arc<Environment>, tool: Tool) -> Result<(), CaseError> {
    let context = Context::new(environment, tool, case.name)?;
    context.create_namespace().await?;
    let work = tokio::time::timeout(CASE_LIMIT, (case.run)(&context));
    work.await.unwrap_or(Err(CaseError::Endless(CASE_LIMIT)))
}

fn reported(case: &Case, outcome: Outcome, took: Duration) -> CaseReport {
    CaseReport { name: case.name, proves: case.proves, outcome, took }
}

/// What the tool can do.
struct Abilities {
    declared: Vec<String>,
    templates: bool,
}

impl Abilities {
    async fn of(tool: &Tool) -> Result<Self, CaseError> {
        Ok(Self {
            declared: tool.describe().await?.capabilities,
            templates: tool.render(RenderRequest::default()).await?.is_some(),
        })
    }

    fn have(&self, ability: Ability) -> bool {
        match ability {
            Ability::Templates => self.templates,
            declared => self.declared.iter().any(|word| word == declared.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_that_is_a_namespace_and_its_own() {
        let mut seen = HashSet::new();
        for case in topics::all() {
            let namespace = case.name.replace('/', "-");
            let plain = namespace.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(plain && namespace.len() <= 50, "{}", case.name);
            assert!(seen.insert(case.name), "{} is there twice", case.name);
            assert!(case.proves.ends_with('.'), "{}", case.name);
        }
    }
}
