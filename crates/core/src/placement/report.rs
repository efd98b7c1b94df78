//! What a placement says about itself.

use chandler_api::reasons::{PlacementReason, PlacementVocabulary};

use crate::{
    conditions::{Status, Wanted, summary},
    identity::ClusterKey,
};

/// What one pass over a placement came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many clusters are selected.
    pub selected: usize,
    /// On how many of them the release is ready.
    pub ready: usize,
    /// The selector cannot be used, and why.
    pub selection_failed: Option<String>,
    /// Clusters whose values could not be rendered.
    pub template_failures: Vec<ClusterFailure>,
    /// Release objects that could not be written.
    pub write_failures: Vec<ClusterFailure>,
    /// Release objects that could not be deleted.
    pub delete_failures: Vec<ClusterFailure>,
    /// Releases that are not wanted any more and stay, because others need them.
    pub still_needed: Vec<ClusterFailure>,
    /// On how many clusters the release is being removed, to be installed anew.
    pub reinstalling: usize,
    /// On how many clusters what is wanted has not been taken in yet.
    pub updating: usize,
    /// Clusters whose release says why it is not ready.
    pub not_ready: Vec<ClusterFailure>,
}

/// What is wrong with one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    pub cluster: ClusterKey,
    pub message: String,
}

/// Clusters named in one message; the rest are counted.
const NAMED: usize = 5;

/// The conditions of a placement: `Ready` first.
pub fn report(outcome: &Outcome, vocabulary: PlacementVocabulary) -> Vec<Wanted> {
    let parts = [specs(outcome, vocabulary), releases(outcome, vocabulary)];
    [summary(&parts, PlacementReason::Ready.in_vocabulary(vocabulary))].into_iter().chain(parts).collect()
}

fn specs(outcome: &Outcome, vocabulary: PlacementVocabulary) -> Wanted {
    let (status, reason, message) = if let Some(why) = &outcome.selection_failed {
        (Status::False, PlacementReason::ClusterSelectionFailed, why.clone())
    } else if !outcome.template_failures.is_empty() {
        (Status::False, PlacementReason::ResolutionFailed, named(&outcome.template_failures))
    } else if !outcome.write_failures.is_empty() {
        (Status::False, PlacementReason::WriteFailed, named(&outcome.write_failures))
    } else if !outcome.delete_failures.is_empty() {
        (Status::False, PlacementReason::DeletionFailed, named(&outcome.delete_failures))
    } else if !outcome.still_needed.is_empty() {
        (Status::False, PlacementReason::StillNeeded, named(&outcome.still_needed))
    } else if outcome.reinstalling > 0 {
        let message = format!("removed from {} clusters before it is installed anew", outcome.reinstalling);
        (Status::False, PlacementReason::Reinstalling, message)
    } else if outcome.updating > 0 {
        (Status::False, PlacementReason::Updating, format!("changing on {} clusters", outcome.updating))
    } else {
        (Status::True, PlacementReason::UpToDate, String::new())
    };
    Wanted { type_: vocabulary.specs_up_to_date(), status, reason: reason.in_vocabulary(vocabulary), message }
}

fn releases(outcome: &Outcome, vocabulary: PlacementVocabulary) -> Wanted {
    let (status, reason, message) = if outcome.ready == outcome.selected {
        (Status::True, PlacementReason::AllReady, String::new())
    } else {
        let waiting = format!("ready on {} of {} clusters", outcome.ready, outcome.selected);
        let message = if outcome.not_ready.is_empty() {
            waiting
        } else {
            format!("{waiting}; {}", named(&outcome.not_ready))
        };
        (Status::False, PlacementReason::NotAllReady, message)
    };
    Wanted { type_: vocabulary.releases_ready(), status, reason: reason.in_vocabulary(vocabulary), message }
}

fn named(failures: &[ClusterFailure]) -> String {
    let shown = failures.iter().take(NAMED).map(|f| format!("{}: {}", f.cluster.name, f.message));
    let more = failures.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("and {more} more clusters"));
    shown.chain(rest).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmChartProxy;

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

    #[test]
    fn the_worst_speaks_first() {
        let rows = [
            (Outcome { selected: 2, ready: 2, ..Outcome::default() }, (Status::True, "Ready")),
            (Outcome::default(), (Status::True, "Ready")),
            (Outcome { selected: 2, ready: 1, ..Outcome::default() }, (Status::False, "NotAllReady")),
            (
                Outcome { selected: 2, ready: 1, template_failures: failures(1), ..Outcome::default() },
                (Status::False, "ValueParsingFailed"),
            ),
            (
                Outcome { selected: 2, delete_failures: failures(1), updating: 1, ..Outcome::default() },
                (Status::False, "HelmReleaseProxyDeletionFailed"),
            ),
            (
                Outcome { selected: 2, reinstalling: 1, updating: 1, ..Outcome::default() },
                (Status::False, "HelmReleaseProxyReinstalling"),
            ),
            (
                Outcome { selected: 2, ready: 1, updating: 1, ..Outcome::default() },
                (Status::False, "HelmReleaseProxySpecsUpdating"),
            ),
            (
                Outcome { selection_failed: Some("bad operator".to_owned()), ..Outcome::default() },
                (Status::False, "ClusterSelectionFailed"),
            ),
        ];
        for (outcome, (status, reason)) in rows {
            let ready = &report(&outcome, HelmChartProxy::VOCABULARY)[0];
            assert_eq!((ready.status, ready.reason.as_str()), (status, reason));
        }
    }

    #[test]
    fn a_message_names_a_few_and_counts_the_rest() {
        let message = named(&failures(1000));
        assert!(message.contains("c4: bad") && !message.contains("c5: bad"), "{message}");
        assert!(message.ends_with("and 995 more clusters"), "{message}");
    }
}
