//! Runs the cases, a few at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    Case, CaseError, CaseReport, Environment, Outcome, Report,
    context::{Context, Shared},
    profile::Profile,
    tool::Tool,
    topics,
};

/// How many cases run at a time.
const PARALLEL: usize = 4;
/// Timeout of one case.
const CASE_TIMEOUT: Duration = Duration::from_secs(150);

/// Runs every case whose name contains the filter. Calls `on_case` as each ends.
pub async fn run(
    environment: Environment,
    filter: Option<&str>,
    on_case: impl Fn(&CaseReport),
) -> Result<Report, CaseError> {
    let environment = Arc::new(environment);
    let tool = Tool::new(environment.tool.clone());
    let profile = Arc::new(Profile::of(&tool.describe().await?, &environment)?);
    let shared = Shared { tool, templates: environment.templates.clone().map(Tool::new), profile };
    let slots = Arc::new(Semaphore::new(PARALLEL));
    let mut running = JoinSet::new();
    let chosen = topics::all().filter(|case| filter.is_none_or(|text| case.name.contains(text)));
    for (index, case) in chosen.enumerate() {
        if let Some(missing) = case.needs.iter().find(|needed| !shared.profile.has(**needed)) {
            let skipped = Outcome::Skipped(missing.missing());
            running.spawn(async move { (index, report(case, skipped, Duration::ZERO)) });
            continue;
        }
        let (environment, shared, slots) = (environment.clone(), shared.clone(), slots.clone());
        running.spawn(async move {
            let _slot = slots.acquire().await;
            let started = Instant::now();
            let outcome = match run_case(case, environment, shared).await {
                Ok(()) => Outcome::Passed,
                Err(error) => Outcome::Failed(error.to_string()),
            };
            (index, report(case, outcome, started.elapsed()))
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

async fn run_case(case: &Case, environment: Arc<Environment>, shared: Shared) -> Result<(), CaseError> {
    let context = Context::new(environment, shared, case.name)?;
    context.create_namespace().await?;
    let work = tokio::time::timeout(CASE_TIMEOUT, (case.run)(&context));
    work.await.unwrap_or(Err(CaseError::Timeout(CASE_TIMEOUT)))
}

fn report(case: &Case, outcome: Outcome, duration: Duration) -> CaseReport {
    CaseReport { name: case.name, proves: case.proves, outcome, duration }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::Path};

    use super::*;
    use crate::Ability;

    #[test]
    fn every_case_has_a_unique_name_that_is_a_namespace() {
        let mut seen = HashSet::new();
        for case in topics::all() {
            let namespace = case.name.replace('/', "-");
            let plain = namespace.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(plain && namespace.len() <= 50, "{}", case.name);
            assert!(seen.insert(namespace), "{} is not unique", case.name);
            assert!(case.proves.ends_with('.'), "{}", case.name);
        }
    }

    #[test]
    fn only_helm_cases_need_helm_records() {
        for case in topics::all() {
            let helm = case.name.starts_with("helm/");
            assert_eq!(helm, case.needs.contains(&Ability::HelmRecords), "{}", case.name);
        }
    }

    #[test]
    fn contract_topics_know_no_helm() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topics");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let topics: Vec<_> = files.filter(|path| path.is_file() && !path.ends_with("helm.rs")).collect();
        assert!(topics.len() > 10, "{topics:?}");
        for path in topics {
            let text = fs::read_to_string(&path).unwrap().to_lowercase();
            for word in ["helm", "chart", "hook"] {
                assert!(!text.contains(word), "{} mentions {word}", path.display());
            }
        }
    }
}
