//! Releases that need a person's hands. Pure.

use std::collections::BTreeMap;

use chandler_api::reasons::{PlacementReason, ReleaseReason};
use chandler_core::{backoff::needs_user_action, failure::Category};
use chandler_view::fleet::{Fleet, Placement, Release, State, advice};
use jiff::{SignedDuration, Timestamp};

use super::Finding;
use crate::output::age;

const CHECK: &str = "releases";
/// A deletion that takes longer does not end by itself.
const STUCK: SignedDuration = SignedDuration::from_mins(10);

pub fn judge(fleet: &Fleet, now: Timestamp) -> Vec<Finding> {
    let mut findings = unreachable(fleet);
    findings.extend(fleet.releases.iter().filter_map(|release| release_finding(release, now)));
    findings.extend(fleet.placements.iter().filter_map(|placement| placement_finding(placement, now)));
    if findings.is_empty() {
        let ready = fleet.releases.iter().filter(|release| release.state() == State::Ready).count();
        findings.push(Finding::ok(CHECK, format!("{ready} of {} releases are ready", fleet.releases.len())));
    }
    findings
}

/// One finding per cluster, however many releases it has.
fn unreachable(fleet: &Fleet) -> Vec<Finding> {
    let mut clusters: BTreeMap<(&str, &str), (&Release, usize)> = BTreeMap::new();
    for release in fleet.releases.iter().filter(|release| release.state() == State::Unreachable) {
        clusters.entry((&release.object.namespace, &release.cluster)).or_insert((release, 0)).1 += 1;
    }
    clusters
        .into_iter()
        .map(|((namespace, cluster), (release, count))| {
            let message = release.ready().map(|ready| ready.message.clone()).unwrap_or_default();
            let held =
                format!("cluster {namespace}/{cluster} cannot be reached, {count} releases wait: {message}");
            Finding::problem("clusters", held, advice(release).unwrap_or_default())
        })
        .collect()
}

fn release_finding(release: &Release, now: Timestamp) -> Option<Finding> {
    let object = &release.object;
    let name = format!("{} {}/{} on cluster {}", object.kind, object.namespace, object.name, release.cluster);
    if let Some(since) = release.deleted.filter(|since| now.duration_since(*since) > STUCK) {
        return Some(stuck(&name, since, &release.finalizers, now));
    }
    let ready = release.ready()?;
    let message = format!("{name}: {}: {}", ready.reason, ready.message);
    let next = advice(release).unwrap_or_default();
    let by_hand = release
        .status
        .last_failure
        .as_ref()
        .is_some_and(|last| needs_user_action(Category::parse(&last.category)));
    match (release.state(), release.reason()) {
        (State::Failed, Some(ReleaseReason::ReleaseCollision | ReleaseReason::InvalidSpec))
        | (State::Waiting, Some(ReleaseReason::GetClusterFailed)) => {
            Some(Finding::problem(CHECK, message, next))
        }
        (State::Failed, _) if by_hand => Some(Finding::problem(CHECK, message, next)),
        (State::Failed, _) => Some(Finding::warning(CHECK, message, format!("it is tried again; {next}"))),
        _ => None,
    }
}

fn placement_finding(placement: &Placement, now: Timestamp) -> Option<Finding> {
    let object = &placement.object;
    let name = format!("{} {}/{}", object.kind, object.namespace, object.name);
    if let Some(since) = placement.deleted.filter(|since| now.duration_since(*since) > STUCK) {
        return Some(stuck(&name, since, &placement.finalizers, now));
    }
    let ready = placement.ready()?;
    let failed = placement.reason().is_some_and(PlacementReason::is_failure);
    failed.then(|| {
        let message = format!("{name}: {}: {}", ready.reason, ready.message);
        Finding::problem("placements", message, format!("correct the spec of {name}: the message says where"))
    })
}

fn stuck(name: &str, since: Timestamp, finalizers: &[String], now: Timestamp) -> Finding {
    Finding::problem(
        CHECK,
        format!("{name} has been being deleted for {}, kept by {}", age(since, now), finalizers.join(", ")),
        "see whether a manager runs and its cluster can be reached; removing the finalizer by hand leaves the release \
         on the workload cluster",
    )
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{ready, release};
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::finding::Verdict;

    fn failed(category: &str) -> Value {
        let mut status = ready("False", "HelmInstallOrUpgradeFailed", "why");
        status["lastFailure"] = json!({"category": category, "message": "why", "input": "", "count": 1, "at": "2026-01-01T00:00:00Z"});
        status
    }

    fn found(release: Release) -> Vec<(&'static str, Verdict)> {
        let fleet = Fleet { placements: vec![], releases: vec![release] };
        let found = judge(&fleet, "2026-01-01T01:00:00Z".parse().unwrap());
        found.iter().map(|finding| (finding.check, finding.verdict)).collect()
    }

    #[test]
    fn what_needs_hands_is_a_problem() {
        let rows = [
            (ready("True", "Ready", ""), ("releases", Verdict::Ok)),
            (ready("False", "HelmReleasePending", ""), ("releases", Verdict::Ok)),
            (failed("Conflict"), ("releases", Verdict::Problem)),
            (failed("Timeout"), ("releases", Verdict::Warning)),
            (ready("False", "ReleaseCollision", ""), ("releases", Verdict::Problem)),
            (ready("False", "InvalidSpec", ""), ("releases", Verdict::Problem)),
            (ready("False", "GetClusterFailed", ""), ("releases", Verdict::Problem)),
            (ready("False", "ClusterUnreachable", ""), ("clusters", Verdict::Problem)),
        ];
        for (status, expected) in rows {
            assert_eq!(found(release("hello", "alpha", &status)), [expected], "{status}");
        }
    }

    #[test]
    fn a_deletion_that_does_not_end_is_a_problem() {
        let mut going = release("hello", "alpha", &ready("False", "HelmReleaseDeleting", ""));
        going.deleted = Some("2026-01-01T00:55:00Z".parse().unwrap());
        assert_eq!(found(going.clone()), [("releases", Verdict::Ok)]);
        going.deleted = Some("2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(found(going), [("releases", Verdict::Problem)]);
    }
}
