//! Lets the API server validate objects before they are written (a dry run).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use chandler_core::{
    failure::{Category, Failure},
    sync::{Manifest, ObjectId, defined_kind, is_definition, is_definition_changed, needs_others},
};
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::{CONCURRENT_REQUESTS, Run, combined, prepare::LiveObjects};
use crate::sync::{
    impersonated_client::{ApplyOptions, RequestError},
    served_kinds::FoundKinds,
};

/// How long the API server may take to serve a CustomResourceDefinition that has changed. It reports
/// no revision of the schema that it validates with, so objects are validated until they are valid.
const SERVE_LIMIT: Duration = Duration::from_secs(15);
const SERVE_POLL: Duration = Duration::from_millis(500);

pub(super) const NOT_SERVED: &str = "its kind is not served by the management cluster yet";

/// The result of a dry run of each object.
type Answers<'a> = Vec<(&'a Manifest, Result<Value, RequestError>)>;

impl Run<'_> {
    /// Validates objects, so that a bad revision changes nothing. Objects whose namespace or role is
    /// created by the same revision cannot be validated yet. Returns the objects whose kind it
    /// defines or changes: they are valid only once its CustomResourceDefinitions are written.
    pub(super) async fn check(
        &self,
        writes: &[Manifest],
        kinds: &FoundKinds,
        rendered: &BTreeSet<ObjectId>,
        live: &LiveObjects,
    ) -> Result<Vec<Manifest>, Failure> {
        let (definitions, others): (Vec<_>, Vec<_>) = writes.iter().partition(|one| is_definition(one));
        let answers = self.dry_run(definitions, kinds).await;
        let changed = changed_kinds(&answers, live);
        let is_early = |manifest: &&Manifest| {
            let kind = (manifest.id.group.clone(), manifest.id.kind.clone());
            changed.contains(&kind) || !kinds.contains_key(&manifest.kind)
        };
        let (deferred, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_early);
        let mut failures = failures(answers, rendered);
        failures.extend(self::failures(self.dry_run(others, kinds).await, rendered));
        match combined(failures) {
            Some(failure) => Err(but(&failure, "nothing is changed")),
            None => Ok(deferred.into_iter().cloned().collect()),
        }
    }

    /// Validates objects whose CustomResourceDefinitions were written by this run, before anything
    /// else is written. Until the API server serves the new schemas, valid objects are refused.
    pub(super) async fn check_deferred(
        &self,
        deferred: &[Manifest],
        kinds: &mut FoundKinds,
        rendered: &BTreeSet<ObjectId>,
    ) -> Result<(), Failure> {
        let end = Instant::now() + SERVE_LIMIT;
        let mut pending: Vec<_> = deferred.iter().collect();
        loop {
            let wanted: Vec<_> = pending.iter().map(|one| one.kind.clone()).collect();
            kinds.extend(self.context.kinds.find(wanted).await?);
            let (served, unserved): (Vec<&Manifest>, Vec<&Manifest>) =
                pending.into_iter().partition(|one| kinds.contains_key(&one.kind));
            let (invalid, failures): (Vec<_>, Vec<_>) = self
                .dry_run(served, kinds)
                .await
                .into_iter()
                .filter_map(|(manifest, answer)| Some((manifest, failure(manifest, answer, rendered)?)))
                .unzip();
            let missing = unserved.first().map(|manifest| manifest.failure(Category::NotReady, NOT_SERVED));
            let Some(failure) = combined(failures.into_iter().chain(missing).collect()) else {
                return Ok(());
            };
            if Instant::now() > end {
                let done = "the Namespaces and CustomResourceDefinitions of this revision are written, and \
                            nothing else is changed";
                return Err(but(&failure, done));
            }
            pending = [invalid, unserved].concat();
            tokio::time::sleep(SERVE_POLL).await;
        }
    }

    async fn dry_run<'a>(&self, manifests: Vec<&'a Manifest>, kinds: &FoundKinds) -> Answers<'a> {
        let options = ApplyOptions { dry_run: true, force: self.sync.spec.force };
        let mut checks = Vec::new();
        for manifest in manifests {
            let Some(kind) = kinds.get(&manifest.kind) else { continue };
            checks.push(async move {
                let at = kind.location(&manifest.id);
                (manifest, self.impersonated.apply(at, &manifest.object, options).await)
            });
        }
        stream::iter(checks).buffered(CONCURRENT_REQUESTS).collect().await
    }
}

/// Returns group and kind of the objects whose schema the CustomResourceDefinitions add or change.
fn changed_kinds(answers: &Answers<'_>, live: &LiveObjects) -> BTreeSet<(String, String)> {
    let changed = answers.iter().filter_map(|(manifest, answer)| {
        let live = live.get(&manifest.id).and_then(Option::as_ref);
        let applied = answer.as_ref().ok()?;
        is_definition_changed(live, applied).then(|| defined_kind(applied))?
    });
    changed.collect()
}

fn failures(answers: Answers<'_>, rendered: &BTreeSet<ObjectId>) -> Vec<Failure> {
    answers.into_iter().filter_map(|(manifest, answer)| failure(manifest, answer, rendered)).collect()
}

fn failure(
    manifest: &Manifest,
    answer: Result<Value, RequestError>,
    rendered: &BTreeSet<ObjectId>,
) -> Option<Failure> {
    let error = answer.err().filter(|error| !(error.missing && needs_others(manifest, rendered)))?;
    Some(manifest.failure(error.failure.category, &error.failure.message))
}

fn but(failure: &Failure, done: &str) -> Failure {
    Failure::new(failure.category, format!("{}; {done}", failure.message))
}
