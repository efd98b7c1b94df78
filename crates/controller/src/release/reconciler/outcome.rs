//! Takes in how operations and reads ended, and remembers failures until they are overcome.

use chandler_api::status::{ObjectRecords, RevisionRecord};
use chandler_core::{
    digest::InputDigest,
    failure::{Category, Failure},
    inventory::{Expectation, ReleaseStatus, RevisionState},
    release::{
        ApplyKind, Desired, OperationKind, ReleaseKind, failure_key, record_failure, retry_requested_at,
    },
    resolution::VersionName,
};
use chandler_tool::{Applied, ReleaseDetails};
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
            Ok(Done::Applied(kind, Applied { details, ignored_fields, .. })) => {
                let before = version_before(&self.status.history, details.revision);
                self.take_applied(&details);
                // A release that was removed meanwhile counts its revisions again.
                self.status.tested.take_if(|tested| tested.revision >= details.revision);
                let (reason, note) = applied(kind, desired, &details, before.as_deref());
                self.publish_normal(reason, &note);
                self.publish_ignored(desired, &ignored_fields);
            }
            Ok(Done::Removed) => {
                self.state.absence_confirmed = true;
                self.expect_absence();
                self.status.last_failure = None;
                let note =
                    format!("Removed release {} from cluster {}", desired.release, desired.cluster.name);
                self.publish_normal("Removed", &note);
            }
            Ok(Done::RolledBack { applied, failed }) => {
                self.take_rolled_back(desired, &applied.details, failed);
                self.publish_ignored(desired, &applied.ignored_fields);
            }
            Ok(Done::Uninstalled) => self.take_uninstalled(desired),
            Ok(Done::Compared { comparison, results }) => {
                self.take_compared(desired, comparison, &results);
            }
            Ok(Done::Tested { revision, tests }) => {
                self.take_tested(desired, outcome.key, revision, &tests);
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
                match (outcome.kind, outcome.scope) {
                    _ if outcome.canceled => {}
                    (OperationKind::Compare, Some(scope)) => {
                        self.take_failed_comparison(&scope, error.failure);
                    }
                    (OperationKind::Test, _) => self.take_untested(desired, outcome.key, &error.failure),
                    _ => self.note_failure(desired, outcome.key, &error.failure),
                }
            }
        }
    }

    fn take_applied(&mut self, details: &ReleaseDetails) {
        self.take_details(details);
        self.expect(details.seen());
        self.status.last_failure = None;
        self.state.differs = None;
        self.note_changed_objects();
    }

    /// Takes in a rollback. The failure before it is kept: it says why, and that it is not tried again.
    fn take_rolled_back(&mut self, desired: &Desired, details: &ReleaseDetails, failed: InputDigest) {
        self.take_details(details);
        self.expect(RevisionState { rolled_back: Some(failed), ..details.seen() });
        self.state.differs = None;
        self.note_changed_objects();
        let note = format!(
            "Rolled release {} back to {} {} with revision {} on cluster {}{}",
            desired.release,
            details.package_name,
            details.package_version,
            details.revision,
            desired.cluster.name,
            self.because(),
        );
        self.publish_warning("RolledBack", &note);
    }

    /// Takes in a removal after the last retry. The failure before it is kept, and so is the object.
    fn take_uninstalled(&mut self, desired: &Desired) {
        self.state.absence_confirmed = true;
        self.expect_absence();
        self.status.inventory = ObjectRecords::default();
        self.status.inventory_revision = None;
        let (release, cluster) = (&desired.release, &desired.cluster.name);
        let note = format!("Uninstalled release {release} from cluster {cluster}{}", self.because());
        self.publish_warning("Uninstalled", &note);
    }

    /// Publishes which fields were left to other field managers: the cluster has other values than the package.
    fn publish_ignored(&self, desired: &Desired, fields: &[String]) {
        if let Some(note) = ignored_note(&desired.cluster.name, fields) {
            self.publish_normal("FieldsIgnored", &note);
        }
    }

    /// Publishes an Event, unless it is about an outcome for which that was done before.
    pub(super) fn publish_normal(&self, reason: &str, note: &str) {
        if !self.outcome_is_repeated {
            self.context.events.normal(&*self.object, reason, note);
        }
    }

    /// Publishes a warning, unless it is about an outcome for which that was done before.
    pub(super) fn publish_warning(&self, reason: &str, note: &str) {
        if !self.outcome_is_repeated {
            self.context.events.warning(&*self.object, reason, note);
        }
    }

    /// Returns the last failure, for the note of an Event.
    fn because(&self) -> String {
        let last = self.status.last_failure.as_ref();
        last.map(|last| format!(", because of {}: {}", last.category, last.message)).unwrap_or_default()
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
        let until = self.now.checked_add(CATCH_UP).unwrap_or(self.now);
        Expectation { seen, since: self.now, until }
    }

    pub(super) fn note_read_failure(&mut self, desired: &Desired, view: &View, failure: &Failure) {
        let generation = self.object.meta().generation;
        // A release that is installed once is read without its inputs.
        let inputs = self.known_inputs(desired, view).map(|inputs| inputs.digest);
        self.note_failure(desired, failure_key::read(generation, inputs.as_ref()), failure);
    }

    pub(super) fn note_failure(&mut self, desired: &Desired, key: String, failure: &Failure) {
        if self.remember_failure(key, failure) {
            let note = desired.failure_note(failure);
            self.publish_warning(failure.category.as_str(), &note);
        }
    }

    /// Remembers a failure. Returns whether it is a new one.
    pub(super) fn remember_failure(&mut self, key: String, failure: &Failure) -> bool {
        if !self.outcome_is_repeated {
            self.context.metrics.failed(status::kind::<R>(), failure.category);
        }
        let last = self.status.last_failure.as_ref();
        let is_known = last.is_some_and(|last| last.input == key && last.message == failure.message);
        let retry_at = retry_requested_at(&*self.object);
        let record = record_failure(last, key, failure, retry_at, Timestamp::now());
        self.status.last_failure = Some(record);
        self.now = Timestamp::now();
        !is_known
    }
}

/// Returns the reason and the note of the Event about a new revision. `before` is the version that was deployed.
fn applied(
    kind: ApplyKind,
    desired: &Desired,
    details: &ReleaseDetails,
    before: Option<&str>,
) -> (&'static str, String) {
    let newer = before.filter(|before| is_newer(before, &details.package_version));
    let reason = match kind {
        ApplyKind::Upgrade if newer.is_some() => "Downgraded",
        ApplyKind::Install => "Installed",
        ApplyKind::Upgrade => "Upgraded",
        ApplyKind::Recover => "Recovered",
    };
    let note = format!(
        "{reason} release {} of {} {} at revision {} on cluster {}{}",
        desired.release,
        details.package_name,
        details.package_version,
        details.revision,
        desired.cluster.name,
        newer.map(|newer| format!(", which had the newer version {newer}")).unwrap_or_default(),
    );
    let note = match &desired.access.folder {
        Some(folder) => format!("{note}, from {folder}"),
        None => note,
    };
    (reason, note)
}

/// Returns the version that was deployed before a revision. The history may already contain this revision, and the one before it
/// as superseded: the watch shows revisions before the operation ends.
fn version_before(history: &[RevisionRecord], revision: u32) -> Option<String> {
    let was_deployed = |known: &&RevisionRecord| {
        let status = ReleaseStatus::parse(&known.status);
        known.revision < revision && matches!(status, ReleaseStatus::Deployed | ReleaseStatus::Superseded)
    };
    history.iter().filter(was_deployed).max_by_key(|known| known.revision)?.version.clone()
}

/// Returns whether a version is newer than another one. Texts that are not versions have no order.
fn is_newer(version: &str, than: &str) -> bool {
    let both = VersionName::parse(version).zip(VersionName::parse(than));
    both.is_some_and(|(version, than)| than.is_older_than(&version))
}

/// Maximum number of fields that an Event names.
const NAMED_FIELDS: usize = 10;

/// Returns the note of an Event about fields that were left to other field managers. `None` if there are none.
fn ignored_note(cluster: &str, fields: &[String]) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let named: Vec<&str> = fields.iter().take(NAMED_FIELDS).map(String::as_str).collect();
    let more = match fields.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("Left fields to other field managers on cluster {cluster}: {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_before_does_not_depend_on_when_the_history_is_read() {
        let history = |records: &[(u32, &str, &str)]| -> Vec<RevisionRecord> {
            let record = |(revision, status, version): &(u32, &str, &str)| RevisionRecord {
                revision: *revision,
                status: (*status).to_owned(),
                version: Some((*version).to_owned()),
                at: Time(Timestamp::UNIX_EPOCH),
            };
            records.iter().map(record).collect()
        };
        let rows = [
            ("before the upgrade", history(&[(1, "deployed", "2.0.0")]), 2, Some("2.0.0")),
            (
                "during the upgrade",
                history(&[(2, "pending-upgrade", "1.9.0"), (1, "deployed", "2.0.0")]),
                2,
                Some("2.0.0"),
            ),
            (
                "after the upgrade",
                history(&[(2, "deployed", "1.9.0"), (1, "superseded", "2.0.0")]),
                2,
                Some("2.0.0"),
            ),
            (
                "after a failed upgrade",
                history(&[(2, "failed", "1.8.0"), (1, "deployed", "2.0.0")]),
                3,
                Some("2.0.0"),
            ),
            ("installation", history(&[(1, "deployed", "1.9.0")]), 1, None),
            ("no history", history(&[]), 2, None),
        ];
        for (name, history, revision, expected) in rows {
            assert_eq!(version_before(&history, revision).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn only_versions_are_compared() {
        for (version, than, expected) in [
            ("2.0.0", "1.9.0", true),
            ("v2.0.0", "1.9.0", true),
            ("2.0.0", "2.0.0-rc.1", true),
            ("2.0.0+b", "2.0.0+a", false),
            ("1.9.0", "2.0.0", false),
            ("1.9.0", "1.9.0", false),
            ("nightly", "1.9.0", false),
        ] {
            assert_eq!(is_newer(version, than), expected, "{version} {than}");
        }
    }

    #[test]
    fn an_event_names_the_first_ignored_fields() {
        let fields =
            |count: usize| (0..count).map(|n| format!(".data.k{n} of ConfigMap a/b")).collect::<Vec<_>>();
        assert_eq!(ignored_note("blue", &[]), None);
        let one = ignored_note("blue", &fields(1)).unwrap();
        assert_eq!(one, "Left fields to other field managers on cluster blue: .data.k0 of ConfigMap a/b");
        let many = ignored_note("blue", &fields(12)).unwrap();
        assert!(
            many.contains(".data.k9 ") && !many.contains(".data.k10 ") && many.ends_with(" and 2 more"),
            "{many}"
        );
    }
}
