//! The status of a catalog.

use chandler_api::{
    extensions::{CatalogStatus, ExtensionCatalogSpec, Verifier},
    reasons::CatalogReason,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    conditions::{NewCondition, Status, merge},
    digest::Digest,
    failure::Failure,
};

/// The result of polling a catalog's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollResult {
    Read {
        packages: u32,
        digest: Digest,
        /// The revision of the Source, if the catalog is a folder of one.
        revision: Option<String>,
    },
    /// The source could not be read. `kept` says whether the packages of the last successful read are still offered.
    Failed { failure: Failure, kept: bool },
    /// The catalog requires signatures that Chandler cannot verify, for this reason.
    Unverifiable(&'static str),
}

/// Returns why the signatures that a catalog requires cannot be verified, or `None` if they can or it requires none.
pub fn unverifiable(spec: &ExtensionCatalogSpec) -> Option<&'static str> {
    match spec.verify.as_ref()?.verifier {
        Verifier::Provenance => Some("signatures made by `helm package --sign` are not supported"),
        Verifier::Cosign if !spec.url.starts_with("oci://") => {
            Some("cosign signatures are supported for OCI registries only")
        }
        Verifier::Cosign => None,
    }
}

/// Returns the status after a poll. It describes the last successful read as long as those packages are offered.
pub fn report(
    old: &CatalogStatus,
    result: &PollResult,
    generation: Option<i64>,
    now: Timestamp,
) -> CatalogStatus {
    let known = match result {
        // A commit that changes nothing in the folder of the catalog does not change the status.
        PollResult::Read { packages, digest, revision: Some(_) }
            if old.revision.is_some() && old.digest.as_deref() == Some(digest.as_str()) =>
        {
            CatalogStatus { packages: Some(*packages), ..old.clone() }
        }
        PollResult::Read { packages, digest, revision } => CatalogStatus {
            packages: Some(*packages),
            read_at: Some(Time(now)),
            digest: Some(digest.to_string()),
            revision: revision.clone(),
            ..CatalogStatus::default()
        },
        PollResult::Failed { kept: true, .. } => old.clone(),
        PollResult::Failed { kept: false, .. } | PollResult::Unverifiable(_) => CatalogStatus::default(),
    };
    let conditions = merge(&old.conditions, vec![ready(&known, result)], generation, now);
    CatalogStatus { conditions, observed_generation: generation, ..known }
}

fn ready(known: &CatalogStatus, result: &PollResult) -> NewCondition {
    let (status, reason, message) = match result {
        PollResult::Read { packages: 0, .. } => (
            Status::True,
            CatalogReason::Ready,
            "the catalog has no packages; if that is not intended, check spec.filter".to_owned(),
        ),
        PollResult::Read { .. } => (Status::True, CatalogReason::Ready, String::new()),
        PollResult::Failed { failure, .. } => (
            Status::False,
            CatalogReason::Failed(failure.category),
            format!("{failure}; {}", consequence(known)),
        ),
        PollResult::Unverifiable(why) => (
            Status::False,
            CatalogReason::VerificationUnavailable,
            format!(
                "{why}, so no package of this catalog is offered; publish its charts in an OCI registry, signed with \
                 cosign, or remove spec.verify to use them unverified"
            ),
        ),
    };
    NewCondition { type_: "Ready", status, reason: reason.into(), message }
}

fn consequence(known: &CatalogStatus) -> String {
    match (&known.packages, &known.read_at) {
        (Some(packages), Some(Time(at))) => {
            let revision = known.revision.as_ref();
            let from = revision.map(|revision| format!(" from revision {revision}")).unwrap_or_default();
            format!(
                "the {packages} packages read{from} at {at:.0} are still offered; releases are not affected"
            )
        }
        _ => "the catalog has not been read yet, so no packages are offered".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::Category;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn read() -> CatalogStatus {
        let result = PollResult::Read { packages: 7, digest: Digest::of("index"), revision: None };
        report(&CatalogStatus::default(), &result, Some(1), at(1))
    }

    fn failed(kept: bool) -> PollResult {
        let failure = Failure::new(Category::SourceUnavailable, "cannot get it: connection refused");
        PollResult::Failed { failure, kept }
    }

    #[test]
    fn an_unavailable_repository_keeps_the_packages_and_is_reported() {
        let good = read();
        assert_eq!((good.packages, good.read_at.clone()), (Some(7), Some(Time(at(1)))));
        assert_eq!(good.conditions[0].status, "True");
        let lost = report(&good, &failed(true), Some(1), at(9));
        assert_eq!((lost.packages, &lost.read_at, &lost.digest), (Some(7), &good.read_at, &good.digest));
        let ready = &lost.conditions[0];
        assert_eq!((&*ready.status, &*ready.reason), ("False", "SourceUnavailable"));
        let expected = "connection refused; the 7 packages read at 1970-01-01T00:00:01Z are still offered";
        assert!(ready.message.contains(expected), "{}", ready.message);
        let again = report(&lost, &failed(true), Some(1), at(10));
        assert_eq!(again, lost, "the same failure again changes nothing");
    }

    #[test]
    fn a_commit_that_changes_nothing_changes_no_status_and_a_bad_one_keeps_the_last_good_content() {
        let read = |content: &str, revision: &str| PollResult::Read {
            packages: 2,
            digest: Digest::of(content),
            revision: Some(revision.to_owned()),
        };
        let first = report(&CatalogStatus::default(), &read("a", "c1"), Some(1), at(1));
        assert_eq!(first.revision.as_deref(), Some("c1"));
        assert_eq!(report(&first, &read("a", "c2"), Some(1), at(9)), first);
        let bad = report(&first, &failed(true), Some(1), at(10));
        assert_eq!((bad.packages, bad.revision.as_deref()), (Some(2), Some("c1")));
        let message = &bad.conditions[0].message;
        assert!(message.contains("the 2 packages read from revision c1 at"), "{message}");
        let reverted = report(&bad, &read("a", "c4"), Some(1), at(11));
        assert_eq!((reverted.conditions[0].status.as_str(), &reverted.read_at), ("True", &first.read_at));
        let next = report(&reverted, &read("b", "c5"), Some(1), at(12));
        assert_eq!((next.revision.as_deref(), next.read_at), (Some("c5"), Some(Time(at(12)))));
    }

    #[test]
    fn packages_that_are_not_offered_are_not_counted() {
        for result in [failed(false), PollResult::Unverifiable("signatures cannot be verified")] {
            let status = report(&read(), &result, Some(2), at(9));
            assert_eq!((status.packages, status.read_at, status.digest), (None, None, None));
            assert_eq!(status.observed_generation, Some(2));
        }
        let unverifiable = report(&read(), &PollResult::Unverifiable("why"), Some(2), at(9));
        let message = &unverifiable.conditions[0].message;
        assert!(message.starts_with("why") && message.contains("remove spec.verify"), "{message}");
    }

    #[test]
    fn only_cosign_signatures_in_registries_can_be_verified() {
        let rows = [
            ("oci://registry.example/charts", Some("Cosign"), true),
            ("oci://registry.example/charts", Some("Provenance"), false),
            ("https://charts.example", Some("Cosign"), false),
            ("https://charts.example", Some("Provenance"), false),
            ("https://charts.example", None, true),
        ];
        for (url, verifier, verifiable) in rows {
            let verify = verifier.map(|verifier| json!({"verifier": verifier, "keys": {"name": "keys"}}));
            let spec = serde_json::from_value(json!({"url": url, "verify": verify})).unwrap();
            assert_eq!(unverifiable(&spec).is_none(), verifiable, "{url} {verifier:?}");
        }
    }
}
