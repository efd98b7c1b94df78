//! Takes in how operations and reads ended, and remembers failures until they are overcome.

use chandler_api::status::{FailureRecord, RevisionRecord};
use chandler_core::{
    backoff,
    failure::{Category, Failure},
    inventory::{Expectation, RevisionState},
    release::{ApplyKind, Desired, PastFailure, ReleaseKind, failure_key},
};
use chandler_tool::ReleaseDetails;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::NamespaceResourceScope;

use super::{CATCH_UP, Outcome, Reconciler, View};
use crate::{release::Done, status};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Takes in how an operation ended.
    pub(super) fn take_in(&mut self, outcome: Outcome, desired: &Desired) {
        match outcome.result {
            Ok(Done::Unchanged(details)) => self.take_applied(&details),
            Ok(Done::Applied(kind, details)) => {
                self.take_applied(&details);
                let (reason, note) = applied(kind, desired, &details);
                self.context.events.normal(&*self.object, reason, &note);
            }
            Ok(Done::Removed) => {
                self.state.absence_confirmed = true;
                self.expect_absence();
                self.status.last_failure = None;
                let note =
                    format!("Removed release {} from cluster {}", desired.release, desired.cluster.name);
                self.context.events.normal(&*self.object, "Removed", &note);
            }
            Err(error) => {
                if let Some(details) = &error.state {
                    self.expect(details.seen());
                }
                if error.failure.category == Category::Unauthorized {
                    // The kubeconfig may have been renewed.
                    let uid = self.context.clusters.facts(&desired.cluster).uid;
                    self.context
                        .caches
                        .connections
                        .to(&desired.cluster, uid.as_deref(), outcome.tool)
                        .list_again();
                }
                if !outcome.canceled {
                    self.note_failure(desired, outcome.key, &error.failure);
                }
            }
        }
    }

    fn take_applied(&mut self, details: &ReleaseDetails) {
        self.take_details(details);
        self.expect(details.seen());
        self.status.last_failure = None;
        self.state.differs = None;
    }

    pub(super) fn take_details(&mut self, details: &ReleaseDetails) {
        self.status.revision = Some(details.revision);
        details.status.as_str().clone_into(&mut self.status.status);
        self.status.inventory.clone_from(&details.inventory);
        self.status.inventory_revision = Some(details.revision);
        let known = self.status.history.iter().find(|known| known.revision == details.revision);
        let record = RevisionRecord {
            revision: details.revision,
            status: details.status.as_str().to_owned(),
            version: Some(details.package_version.clone()),
            at: known.map_or(Time(self.now), |known| known.at.clone()),
        };
        self.status.history.retain(|known| known.revision != details.revision);
        self.status.history.insert(0, record);
    }

    pub(super) fn expect(&mut self, seen: RevisionState) {
        self.state.expectation = Some(self.expectation(Some(seen)));
    }

    pub(super) fn expect_absence(&mut self) {
        self.state.expectation = Some(self.expectation(None));
    }

    fn expectation(&self, seen: Option<RevisionState>) -> Expectation {
        Expectation { seen, until: self.now.checked_add(CATCH_UP).unwrap_or(self.now) }
    }

    pub(super) fn note_read_failure(&mut self, desired: &Desired, view: &View, failure: &Failure) {
        let generation = self.object.meta().generation;
        if let Some(inputs) = self.known_inputs(desired, view) {
            self.note_failure(desired, failure_key::read(generation, &inputs.digest), failure);
        }
    }

    pub(super) fn note_failure(&mut self, desired: &Desired, key: String, failure: &Failure) {
        self.context.metrics.failed(status::kind::<R>(), failure.category);
        let last = self.status.last_failure.as_ref();
        let count = last.filter(|last| last.input == key).map_or(1, |last| last.count.saturating_add(1));
        let is_known = last.is_some_and(|last| last.input == key && last.message == failure.message);
        self.status.last_failure = Some(FailureRecord {
            category: failure.category.to_string(),
            message: failure.message.clone(),
            input: key,
            count,
            at: Time(Timestamp::now()),
        });
        self.now = Timestamp::now();
        if !is_known {
            let note = desired.failure_note(failure);
            self.context.events.warning(&*self.object, failure.category.as_str(), &note);
        }
    }

    pub(super) fn past_failure(&self) -> Option<PastFailure> {
        let last = self.status.last_failure.as_ref()?;
        let failure = Failure::new(Category::parse(&last.category), last.message.clone());
        let delay = backoff::delay(failure.category, last.count, &self.uid);
        let retry_at = last.at.0.checked_add(delay).ok()?;
        Some(PastFailure { key: last.input.clone(), failure, retry_at })
    }
}

fn applied(kind: ApplyKind, desired: &Desired, details: &ReleaseDetails) -> (&'static str, String) {
    let reason = match kind {
        ApplyKind::Install => "Installed",
        ApplyKind::Upgrade => "Upgraded",
        ApplyKind::Recover => "Recovered",
    };
    let note = format!(
        "{reason} release {} of {} {} at revision {} on cluster {}",
        desired.release,
        details.package_name,
        details.package_version,
        details.revision,
        desired.cluster.name
    );
    let note = match &desired.access.folder {
        Some(folder) => format!("{note}, from {folder}"),
        None => note,
    };
    (reason, note)
}
