//! Checks for releases and placements that the user must fix. Pure.

use std::collections::BTreeMap;

use chandler_api::reasons::{PlacementReason, ReleaseReason};
use chandler_core::{backoff::needs_user_action, failure::Category};
use chandler_view::fleet::{Fleet, Placement, Release, State, next_step};
use jiff::{SignedDuration, Timestamp};

use super::Finding;
use crate::output::age;

const CHECK: &str = "releases";
/// A deletion that takes longer is reported as stuck.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(10);

pub fn evaluate(fleet: &Fleet, now: Timestamp) -> Vec<Finding> {
    let mut findings = unreachable(fleet);
    findings.extend(fleet.releases.iter().filter_map(|release| release_finding(release, now)));
    findings.extend(fleet.placements.iter().filter_map(|placement| placement_finding(placement, now)));
    if findings.is_empty() {
        let ready = fleet.releases.iter().filter(|release| release.state() == State::Ready).count();
        findings.push(Finding::ok(CHECK, format!("{ready} of {} releases are ready", fleet.releases.len())));
    }
    findings
}

/// Returns one finding per unreachable cluster, regardless of the number of releases.
fn unreachable(fleet: &Fleet) -> Vec<Finding> {
    let mut clusters: BTreeMap<(&str, &str), (&Release, usize)> = BTreeMap::new();
    for release in fleet.releases.iter().filter(|release| release.state() == State::Unreachable) {
        clusters.entry((&release.object.namespace, &release.cluster)).or_insert((release, 0)).1 += 1;
    }
    clusters
        .into_iter()
        .map(|((namespace, cluster), (release, count))| {
            let message = release.ready().map(|ready| ready.message.clone()).unwrap_or_default();
            let message = format!(
                "cluster {namespace}/{cluster} is unreachable, {count} releases are waiting: {message}"
            );
            Finding::problem("clusters", message, next_step(release).unwrap_or_default())
        })
        .collect()
}

fn release_finding(release: &Release, now: Timestamp) -> Option<Finding> {
    let object = &release.object;
    let name = format!("{} {}/{} on cluster {}", object.kind, object.namespace, object.name, release.cluster);
    if let Some(since) = release.deletion_timestamp.filter(|since| now.duration_since(*since) > STUCK_AFTER) {
        return Some(stuck_release(release, &name, since, now));
    }
    let ready = release.ready()?;
    let message = format!("{name}: {}: {}", ready.reason, ready.message);
    let next_step = next_step(release).unwrap_or_default();
    let needs_user = release
        .status
        .last_failure
        .as_ref()
        .is_some_and(|last| needs_user_action(Category::parse(&last.category)));
    match (release.state(), release.reason()) {
        // Chandler cannot resolve the first two, and does not retry the others on its own.
        (
            State::Failed,
            Some(
                ReleaseReason::ReleaseCollision
                | ReleaseReason::InvalidSpec
                | ReleaseReason::RetriesExhausted
                | ReleaseReason::Stalled
                | ReleaseReason::RolledBack,
            ),
        )
        | (State::Waiting, Some(ReleaseReason::GetClusterFailed)) => {
            Some(Finding::problem(CHECK, message, next_step))
        }
        // The objects may recover.
        (State::Failed, Some(ReleaseReason::Unhealthy)) => Some(Finding::warning(CHECK, message, next_step)),
        (State::Failed, _) if needs_user => Some(Finding::problem(CHECK, message, next_step)),
        (State::Failed, _) => {
            Some(Finding::warning(CHECK, message, format!("Chandler retries it; {next_step}")))
        }
        _ => None,
    }
}

/// Returns the finding of a deletion that takes long. One that waits for the user says for what.
fn stuck_release(release: &Release, name: &str, since: Timestamp, now: Timestamp) -> Finding {
    let mut finding = stuck(name, since, &release.finalizers, now);
    if let Some(reason @ (ReleaseReason::Suspended | ReleaseReason::PolicyNotFound)) = release.reason() {
        finding.message = format!("{}: {}", finding.message, reason.as_str());
        finding.next_step = next_step(release);
    }
    finding
}

fn placement_finding(placement: &Placement, now: Timestamp) -> Option<Finding> {
    let object = &placement.object;
    let name = format!("{} {}/{}", object.kind, object.namespace, object.name);
    if let Some(since) = placement.deletion_timestamp.filter(|since| now.duration_since(*since) > STUCK_AFTER)
    {
        return Some(stuck(&name, since, &placement.finalizers, now));
    }
    let ready = placement.ready()?;
    let failed = placement.reason().is_some_and(PlacementReason::is_failure);
    failed.then(|| {
        let message = format!("{name}: {}: {}", ready.reason, ready.message);
        Finding::problem(
            "placements",
            message,
            format!("correct the spec of {name}: the message names the field"),
        )
    })
}

fn stuck(name: &str, since: Timestamp, finalizers: &[String], now: Timestamp) -> Finding {
    Finding::problem(
        CHECK,
        format!(
            "{name} has been terminating for {}, waiting for finalizers {}",
            age(since, now),
            finalizers.join(", ")
        ),
        "check that a manager is running and that the cluster is reachable; if you remove the finalizer manually, the \
         release stays on the workload cluster",
    )
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{ready, release};
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::finding::Severity;

    fn failed(category: &str) -> Value {
        let mut status = ready("False", "HelmInstallOrUpgradeFailed", "why");
        status["lastFailure"] = json!({"category": category, "message": "why", "input": "", "count": 1, "at": "2026-01-01T00:00:00Z"});
        status
    }

    fn found(release: Release) -> Vec<(&'static str, Severity)> {
        let fleet = Fleet { placements: vec![], releases: vec![release] };
        let found = evaluate(&fleet, "2026-01-01T01:00:00Z".parse().unwrap());
        found.iter().map(|finding| (finding.check, finding.severity)).collect()
    }

    #[test]
    fn failures_that_the_user_must_fix_are_problems() {
        let rows = [
            (ready("True", "Ready", ""), ("releases", Severity::Ok)),
            (ready("False", "HelmReleasePending", ""), ("releases", Severity::Ok)),
            (failed("Conflict"), ("releases", Severity::Problem)),
            (failed("Timeout"), ("releases", Severity::Warning)),
            (ready("False", "ReleaseCollision", ""), ("releases", Severity::Problem)),
            (ready("False", "InvalidSpec", ""), ("releases", Severity::Problem)),
            (ready("False", "GetClusterFailed", ""), ("releases", Severity::Problem)),
            (ready("Unknown", "ClusterUnreachable", ""), ("clusters", Severity::Problem)),
            (ready("False", "RetriesExhausted", ""), ("releases", Severity::Problem)),
            (ready("False", "RolledBack", ""), ("releases", Severity::Problem)),
            (ready("False", "Unhealthy", ""), ("releases", Severity::Warning)),
            (ready("False", "Suspended", ""), ("releases", Severity::Ok)),
        ];
        for (status, expected) in rows {
            assert_eq!(found(release("hello", "alpha", &status)), [expected], "{status}");
        }
    }

    #[test]
    fn a_stuck_deletion_is_a_problem() {
        let mut deleting = release("hello", "alpha", &ready("False", "HelmReleaseDeleting", ""));
        deleting.deletion_timestamp = Some("2026-01-01T00:55:00Z".parse().unwrap());
        assert_eq!(found(deleting.clone()), [("releases", Severity::Ok)]);
        deleting.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(found(deleting), [("releases", Severity::Problem)]);
    }

    #[test]
    fn a_deletion_that_waits_for_the_user_names_the_command() {
        let mut deleting = release("hello", "alpha", &ready("False", "Suspended", ""));
        deleting.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
        let fleet = Fleet { placements: vec![], releases: vec![deleting] };
        let found = evaluate(&fleet, "2026-01-01T01:00:00Z".parse().unwrap());
        assert!(found[0].next_step.as_ref().unwrap().contains("chandler resume hcp/hello"), "{found:?}");
    }
}
