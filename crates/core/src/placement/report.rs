//! The conditions of a placement.

use chandler_api::{
    reasons::{PlacementReason, PlacementVocabulary},
    status::RolloutStatus,
};

use crate::{
    conditions::{NewCondition, Status, ready_summary},
    identity::ClusterKey,
    rollout,
};

/// The result of a reconcile of a placement, summed up over its clusters.
#[derive(Clone, Debug, Default)]
pub struct PlacementSummary {
    /// Number of selected clusters.
    pub selected: usize,
    /// Number of clusters whose release is ready.
    pub ready: usize,
    /// Why the selector is invalid, if it is.
    pub selection_failed: Option<String>,
    /// Clusters whose values could not be rendered.
    pub template_failures: Vec<ClusterFailure>,
    /// Release objects that could not be written.
    pub write_failures: Vec<ClusterFailure>,
    /// Release objects that could not be deleted.
    pub delete_failures: Vec<DeleteFailure>,
    /// Releases that are no longer selected but stay, because other releases depend on them.
    pub still_needed: Vec<ClusterFailure>,
    /// Number of clusters on which the release is being removed, to be installed again.
    pub reinstalling: usize,
    /// Number of clusters whose release object has not been reconciled with its current spec yet.
    pub updating: usize,
    /// Number of clusters whose release was ready before it got its current spec, which has not been reconciled yet. They
    /// are not counted as ready, but do not make the placement unready.
    pub settling: usize,
    /// Clusters whose release is not ready, and why.
    pub not_ready: Vec<ClusterFailure>,
    /// How far the rollout is, if the policy has one.
    pub rollout: Option<RolloutStatus>,
}

/// A problem of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    pub cluster: ClusterKey,
    pub message: String,
}

/// A release object that could not be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteFailure {
    /// The name of the release object.
    pub object: String,
    /// `None` if the release object names no cluster.
    pub cluster: Option<ClusterKey>,
    pub message: String,
}

impl ClusterFailure {
    fn text(&self) -> String {
        format!("{}: {}", self.cluster.name, self.message)
    }
}

impl DeleteFailure {
    fn text(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{}: {}", cluster.name, self.message),
            None => format!("release object {}, which names no cluster: {}", self.object, self.message),
        }
    }
}

/// Number of clusters that one message names. The rest are counted.
const NAMED: usize = 5;

/// Returns the conditions of a placement, `Ready` first.
pub fn report(summary: &PlacementSummary, vocabulary: PlacementVocabulary) -> Vec<NewCondition> {
    let parts = [specs(summary, vocabulary), releases(summary, vocabulary)];
    let rolled_out = summary.rollout.as_ref().map(|status| rollout::condition(status, vocabulary));
    let is_failure = |part: &NewCondition| {
        PlacementReason::parse(part.reason.as_str()).is_some_and(PlacementReason::is_failure)
    };
    // Why a spec does not reach clusters matters more than that it does not.
    let mut order: Vec<_> = parts.iter().cloned().chain(rolled_out.clone()).collect();
    order.rotate_right(usize::from(rolled_out.is_some()));
    order.sort_by_key(|part| !is_failure(part) || part.status == Status::True);
    [ready_summary(&order, PlacementReason::Ready.in_vocabulary(vocabulary))]
        .into_iter()
        .chain(parts)
        .chain(rolled_out)
        .collect()
}

fn specs(summary: &PlacementSummary, vocabulary: PlacementVocabulary) -> NewCondition {
    let (status, reason, message) = if let Some(why) = &summary.selection_failed {
        (Status::False, PlacementReason::ClusterSelectionFailed, why.clone())
    } else if !summary.template_failures.is_empty() {
        (
            Status::False,
            PlacementReason::ResolutionFailed,
            named(&summary.template_failures, ClusterFailure::text),
        )
    } else if !summary.write_failures.is_empty() {
        (Status::False, PlacementReason::WriteFailed, named(&summary.write_failures, ClusterFailure::text))
    } else if !summary.delete_failures.is_empty() {
        (Status::False, PlacementReason::DeletionFailed, named(&summary.delete_failures, DeleteFailure::text))
    } else if !summary.still_needed.is_empty() {
        (Status::False, PlacementReason::StillNeeded, named(&summary.still_needed, ClusterFailure::text))
    } else if summary.reinstalling > 0 {
        let message = format!("being removed from {} clusters, to be installed again", summary.reinstalling);
        (Status::False, PlacementReason::Reinstalling, message)
    } else if let Some(waiting) =
        summary.rollout.as_ref().map(|rollout| rollout.waiting).filter(|waiting| *waiting > 0)
    {
        (Status::False, PlacementReason::Updating, format!("{waiting} clusters wait for the rollout"))
    } else if summary.updating > 0 {
        (Status::False, PlacementReason::Updating, format!("updating on {} clusters", summary.updating))
    } else {
        (Status::True, PlacementReason::UpToDate, String::new())
    };
    NewCondition {
        type_: vocabulary.specs_up_to_date(),
        status,
        reason: reason.in_vocabulary(vocabulary),
        message,
    }
}

fn releases(summary: &PlacementSummary, vocabulary: PlacementVocabulary) -> NewCondition {
    let (status, reason, message) = if summary.ready + summary.settling == summary.selected {
        (Status::True, PlacementReason::AllReady, String::new())
    } else {
        let waiting = format!("ready on {} of {} clusters", summary.ready, summary.selected);
        let message = if summary.not_ready.is_empty() {
            waiting
        } else {
            format!("{waiting}; {}", named(&summary.not_ready, ClusterFailure::text))
        };
        (Status::False, PlacementReason::NotAllReady, message)
    };
    NewCondition {
        type_: vocabulary.releases_ready(),
        status,
        reason: reason.in_vocabulary(vocabulary),
        message,
    }
}

fn named<F>(failures: &[F], text: impl Fn(&F) -> String) -> String {
    let shown = failures.iter().take(NAMED).map(text);
    let more = failures.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("and {more} more clusters"));
    shown.chain(rest).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use chandler_api::{addons::HelmChartProxy, status::RolloutState};

    use super::*;
    use crate::placement::PlacementKind as _;

    fn failures(count: usize) -> Vec<ClusterFailure> {
        (0..count)
            .map(|n| ClusterFailure {
                cluster: ClusterKey::new("fleet", format!("c{n}")),
                message: "bad".to_owned(),
            })
            .collect()
    }

    fn delete_failure(cluster: Option<ClusterKey>) -> DeleteFailure {
        DeleteFailure { object: "hello-x7k2p".to_owned(), cluster, message: "forbidden".to_owned() }
    }

    #[test]
    fn the_name_of_a_release_object_is_not_reported_as_a_cluster() {
        let blue = delete_failure(Some(ClusterKey::new("fleet", "blue")));
        assert_eq!(blue.text(), "blue: forbidden");
        let unknown = delete_failure(None).text();
        assert_eq!(unknown, "release object hello-x7k2p, which names no cluster: forbidden");
    }

    #[test]
    fn ready_reports_the_most_severe_problem() {
        let rows = [
            (
                PlacementSummary { selected: 2, ready: 2, ..PlacementSummary::default() },
                (Status::True, "Ready"),
            ),
            (PlacementSummary::default(), (Status::True, "Ready")),
            (
                PlacementSummary { selected: 2, ready: 1, ..PlacementSummary::default() },
                (Status::False, "NotAllReady"),
            ),
            (
                PlacementSummary { selected: 2, ready: 1, settling: 1, ..PlacementSummary::default() },
                (Status::True, "Ready"),
            ),
            (
                PlacementSummary { selected: 3, ready: 1, settling: 1, ..PlacementSummary::default() },
                (Status::False, "NotAllReady"),
            ),
            (
                PlacementSummary {
                    selected: 2,
                    ready: 1,
                    template_failures: failures(1),
                    ..PlacementSummary::default()
                },
                (Status::False, "ValueParsingFailed"),
            ),
            (
                PlacementSummary {
                    selected: 2,
                    delete_failures: vec![delete_failure(None)],
                    updating: 1,
                    ..PlacementSummary::default()
                },
                (Status::False, "HelmReleaseProxyDeletionFailed"),
            ),
            (
                PlacementSummary { selected: 2, reinstalling: 1, updating: 1, ..PlacementSummary::default() },
                (Status::False, "HelmReleaseProxyReinstalling"),
            ),
            (
                PlacementSummary { selected: 2, ready: 1, updating: 1, ..PlacementSummary::default() },
                (Status::False, "HelmReleaseProxySpecsUpdating"),
            ),
            (
                PlacementSummary {
                    selection_failed: Some("bad operator".to_owned()),
                    ..PlacementSummary::default()
                },
                (Status::False, "ClusterSelectionFailed"),
            ),
        ];
        for (summary, (status, reason)) in rows {
            let ready = &report(&summary, HelmChartProxy::VOCABULARY)[0];
            assert_eq!((ready.status, ready.reason.as_str()), (status, reason));
        }
    }

    #[test]
    fn a_rollout_that_has_not_ended_makes_a_placement_unready() {
        let rollout = |state, waiting| PlacementSummary {
            selected: 2,
            ready: 2,
            rollout: Some(RolloutStatus {
                state,
                waiting,
                message: "1 of 2".to_owned(),
                ..RolloutStatus::default()
            }),
            ..PlacementSummary::default()
        };
        let invalid = |summary| PlacementSummary { template_failures: failures(1), ..summary };
        let rows = [
            (rollout(RolloutState::Done, 0), "Ready", "UpToDate"),
            (rollout(RolloutState::Progressing, 0), "RollingOut", "UpToDate"),
            (rollout(RolloutState::Soaking, 1), "RolloutSoaking", "HelmReleaseProxySpecsUpdating"),
            (rollout(RolloutState::Stopped, 1), "RolloutStopped", "HelmReleaseProxySpecsUpdating"),
            (invalid(rollout(RolloutState::Progressing, 1)), "ValueParsingFailed", "ValueParsingFailed"),
        ];
        for (summary, ready, specs) in rows {
            let conditions = report(&summary, HelmChartProxy::VOCABULARY);
            let reasons: Vec<_> = conditions.iter().map(|one| one.reason.as_str()).collect();
            assert_eq!((reasons[0], reasons[1]), (ready, specs));
            assert_eq!((conditions.len(), conditions[3].type_), (4, "RolledOut"));
        }
    }

    #[test]
    fn a_message_names_a_few_and_counts_the_rest() {
        let message = named(&failures(1000), ClusterFailure::text);
        assert!(message.contains("c4: bad") && !message.contains("c5: bad"), "{message}");
        assert!(message.ends_with("and 995 more clusters"), "{message}");
    }
}
