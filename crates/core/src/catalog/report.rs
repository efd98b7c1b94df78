//! What a catalog says about itself.

use chandler_api::{
    extensions::{CatalogStatus, ExtensionCatalogSpec, Verifier},
    reasons::CatalogReason,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    conditions::{Status, Wanted, merge},
    digest::Digest,
    failure::Failure,
};

/// What a look at a catalog's source came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Read {
        packages: u32,
        digest: Digest,
    },
    /// `kept`: what was read before is still offered.
    Failed {
        failure: Failure,
        kept: bool,
    },
    /// Signatures are asked for, which cannot be checked: why.
    Unverifiable(&'static str),
}

/// Why the signatures that a catalog asks for cannot be checked. None: they can, or it asks for none.
pub fn unverifiable(spec: &ExtensionCatalogSpec) -> Option<&'static str> {
    match spec.verify.as_ref()?.verifier {
        Verifier::Provenance => Some("signatures made by `helm package --sign` cannot be checked"),
        Verifier::Cosign if !spec.url.starts_with("oci://") => {
            Some("signatures made by cosign are looked for in registries only")
        }
        Verifier::Cosign => None,
    }
}

/// The status after a look. What was read before stands in it as long as it is offered.
pub fn report(old: &CatalogStatus, look: &Look, generation: Option<i64>, now: Timestamp) -> CatalogStatus {
    let known = match look {
        Look::Read { packages, digest } => CatalogStatus {
            packages: Some(*packages),
            read_at: Some(Time(now)),
            digest: Some(digest.to_string()),
            ..CatalogStatus::default()
        },
        Look::Failed { kept: true, .. } => old.clone(),
        Look::Failed { kept: false, .. } | Look::Unverifiable(_) => CatalogStatus::default(),
    };
    let conditions = merge(&old.conditions, vec![ready(&known, look)], generation, now);
    CatalogStatus { conditions, observed_generation: generation, ..known }
}

fn ready(known: &CatalogStatus, look: &Look) -> Wanted {
    let (status, reason, message) = match look {
        Look::Read { packages: 0, .. } => (
            Status::True,
            CatalogReason::Ready,
            "it has no packages; if that is not meant, check spec.filter".to_owned(),
        ),
        Look::Read { .. } => (Status::True, CatalogReason::Ready, String::new()),
        Look::Failed { failure, .. } => (
            Status::False,
            CatalogReason::Failed(failure.category),
            format!("{failure}; {}", consequence(known)),
        ),
        Look::Unverifiable(why) => (
            Status::False,
            CatalogReason::VerificationUnavailable,
            format!(
                "{why}, so nothing of this catalog is offered; publish its charts in a registry, signed with cosign, \
                 or remove spec.verify to take them unchecked"
            ),
        ),
    };
    Wanted { type_: "Ready", status, reason: reason.into(), message }
}

fn consequence(known: &CatalogStatus) -> String {
    match (&known.packages, &known.read_at) {
        (Some(packages), Some(Time(at))) => {
            format!("the {packages} packages read at {at:.0} are still offered, and what runs keeps running")
        }
        _ => "nothing has been read yet, so nothing is offered".to_owned(),
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
        let look = Look::Read { packages: 7, digest: Digest::of("index") };
        report(&CatalogStatus::default(), &look, Some(1), at(1))
    }

    fn failed(kept: bool) -> Look {
        let failure = Failure::new(Category::SourceUnavailable, "cannot get it: connection refused");
        Look::Failed { failure, kept }
    }

    #[test]
    fn a_lost_repository_leaves_what_was_read_and_says_so() {
        let good = read();
        assert_eq!((good.packages, good.read_at.clone()), (Some(7), Some(Time(at(1)))));
        assert_eq!(good.conditions[0].status, "True");
        let lost = report(&good, &failed(true), Some(1), at(9));
        assert_eq!((lost.packages, &lost.read_at, &lost.digest), (Some(7), &good.read_at, &good.digest));
        let ready = &lost.conditions[0];
        assert_eq!((&*ready.status, &*ready.reason), ("False", "SourceUnavailable"));
        let said = "connection refused; the 7 packages read at 1970-01-01T00:00:01Z are still offered";
        assert!(ready.message.contains(said), "{}", ready.message);
        let again = report(&lost, &failed(true), Some(1), at(10));
        assert_eq!(again, lost, "the same failure again changes nothing");
    }

    #[test]
    fn what_is_not_offered_is_not_counted() {
        for look in [failed(false), Look::Unverifiable("signatures cannot be checked")] {
            let status = report(&read(), &look, Some(2), at(9));
            assert_eq!((status.packages, status.read_at, status.digest), (None, None, None));
            assert_eq!(status.observed_generation, Some(2));
        }
        let unverifiable = report(&read(), &Look::Unverifiable("why"), Some(2), at(9));
        let message = &unverifiable.conditions[0].message;
        assert!(message.starts_with("why") && message.contains("remove spec.verify"), "{message}");
    }

    #[test]
    fn only_signatures_of_cosign_in_registries_can_be_checked() {
        let rows = [
            ("oci://registry.example/charts", Some("Cosign"), true),
            ("oci://registry.example/charts", Some("Provenance"), false),
            ("https://charts.example", Some("Cosign"), false),
            ("https://charts.example", Some("Provenance"), false),
            ("https://charts.example", None, true),
        ];
        for (url, verifier, can_be) in rows {
            let verify = verifier.map(|verifier| json!({"verifier": verifier, "keys": {"name": "keys"}}));
            let spec = serde_json::from_value(json!({"url": url, "verify": verify})).unwrap();
            assert_eq!(unverifiable(&spec).is_none(), can_be, "{url} {verifier:?}");
        }
    }
}
