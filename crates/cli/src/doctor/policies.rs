//! Checks for AddonPolicies that do not exist, are invalid or contradict the options of their placement. Pure.

use std::collections::BTreeMap;

use chandler_api::{reasons::ReleaseReason, status::POLICY_ACCEPTED};
use chandler_view::fleet::{Fleet, ObjectName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Finding;

const CHECK: &str = "policies";

/// Returns one finding per placement whose policy is not accepted, regardless of the number of releases.
pub fn evaluate(fleet: &Fleet) -> Vec<Finding> {
    let refused = fleet.releases.iter().filter_map(|release| {
        let (kind, name) = release.placement.clone()?;
        let namespace = release.object.namespace.clone();
        let condition = release.condition(POLICY_ACCEPTED).filter(|condition| condition.status == "False")?;
        Some((ObjectName { kind, namespace, name }, condition))
    });
    let refused: BTreeMap<ObjectName, &Condition> = refused.collect();
    refused.iter().map(|(placement, condition)| finding(placement, condition)).collect()
}

fn finding(placement: &ObjectName, condition: &Condition) -> Finding {
    let message = format!("{placement}: {}: {}", condition.reason, condition.message);
    match ReleaseReason::parse(&condition.reason) {
        Some(ReleaseReason::PolicyNotFound) => {
            let next_step = format!(
                "create the AddonPolicy, or remove the reference to it from {placement}: until then its releases are left unchanged"
            );
            Finding::problem(CHECK, message, next_step)
        }
        Some(ReleaseReason::PolicyInvalid) => {
            Finding::warning(CHECK, message, "correct the field of the AddonPolicy: it is ignored".to_owned())
        }
        _ => {
            let next_step =
                format!("remove the field from the AddonPolicy, or the option, which wins, from {placement}");
            Finding::warning(CHECK, message, next_step)
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{fleet, ready, release};
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_missing_policy_is_one_problem_of_its_placement() {
        let accepted = |status: &str, reason: &str| {
            let mut all = ready("True", "Ready", "");
            let condition = json!({
                "type": "PolicyAccepted", "status": status, "reason": reason, "message": "AddonPolicy fleet/careful",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            all["conditions"].as_array_mut().unwrap().push(condition);
            all
        };
        let mut fleet = fleet();
        assert_eq!(evaluate(&fleet), []);
        let rows = [
            ("True", "Accepted", None),
            ("False", "PolicyNotFound", Some(Severity::Problem)),
            ("False", "PolicyConflict", Some(Severity::Warning)),
            ("False", "PolicyInvalid", Some(Severity::Warning)),
        ];
        for (status, reason, expected) in rows {
            fleet.releases = ["alpha", "bravo"]
                .map(|cluster| release("hello", cluster, &accepted(status, reason)))
                .into_iter()
                .collect();
            let found = evaluate(&fleet);
            let severities: Vec<_> = found.iter().map(|finding| finding.severity).collect();
            assert_eq!(severities, expected.into_iter().collect::<Vec<_>>(), "{reason}");
            assert!(found.iter().all(|one| one.message.starts_with("HelmChartProxy fleet/hello: Policy")));
        }
    }
}
