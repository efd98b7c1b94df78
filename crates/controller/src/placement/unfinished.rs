//! What a reconcile of a placement leaves to the next one.

use std::collections::HashSet;

use chandler_core::{identity::ClusterKey, placement::PlacementSummary};

use super::ReconcileScope;

/// What a reconcile of a placement could not finish.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The clusters that the next reconcile includes, whatever triggers it.
    pub clusters: HashSet<ClusterKey>,
    /// The scope of a retry after a delay, in addition to these clusters. `None` means that an event triggers the next
    /// reconcile.
    pub retry: Option<ReconcileScope>,
}

/// Returns what is left to do: for clusters whose release object may be composed without an event (`transient`), for the
/// failures of `summary`, and for clusters whose written objects the watch has yet to show (`lagging`). The last need no
/// retry.
pub fn unfinished(
    transient: impl IntoIterator<Item = ClusterKey>,
    summary: &PlacementSummary,
    lagging: impl IntoIterator<Item = ClusterKey>,
) -> Unfinished {
    let mut clusters: HashSet<_> = transient.into_iter().collect();
    let failed = summary.write_failures.iter().chain(&summary.still_needed);
    clusters.extend(failed.map(|failure| failure.cluster.clone()));
    clusters.extend(summary.delete_failures.iter().filter_map(|failure| failure.cluster.clone()));
    let retry = if summary.delete_failures.iter().any(|failure| failure.cluster.is_none()) {
        // A release object without a cluster is in the scope of all clusters only.
        Some(ReconcileScope::All)
    } else if clusters.is_empty() {
        None
    } else {
        // The timer is for the unfinished clusters only.
        Some(ReconcileScope::status())
    };
    clusters.extend(lagging);
    Unfinished { clusters, retry }
}

#[cfg(test)]
mod tests {
    use chandler_core::placement::{ClusterFailure, DeleteFailure};

    use super::*;

    /// Description, transient clusters, summary, lagging clusters; then the expected clusters and retry.
    type Row<'a> =
        (&'a str, &'a [&'a str], PlacementSummary, &'a [&'a str], &'a [&'a str], Option<ReconcileScope>);

    fn key(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn failures(names: &[&str]) -> Vec<ClusterFailure> {
        let failure = |name: &&str| ClusterFailure { cluster: key(name), message: "why".to_owned() };
        names.iter().map(failure).collect()
    }

    fn not_deleted(cluster: Option<&str>) -> Vec<DeleteFailure> {
        let object = "hello".to_owned();
        vec![DeleteFailure { object, cluster: cluster.map(key), message: "why".to_owned() }]
    }

    #[test]
    fn failures_are_retried_and_objects_that_the_watch_has_yet_to_show_are_only_included() {
        let none = PlacementSummary::default;
        let write = PlacementSummary { write_failures: failures(&["blue"]), ..none() };
        let needed = PlacementSummary { still_needed: failures(&["blue"]), ..none() };
        let delete = PlacementSummary { delete_failures: not_deleted(Some("blue")), ..none() };
        let nameless = PlacementSummary { delete_failures: not_deleted(None), ..none() };
        let both = PlacementSummary { write_failures: failures(&["blue"]), ..nameless.clone() };
        let template = PlacementSummary { template_failures: failures(&["blue"]), ..none() };
        let not_ready = PlacementSummary { not_ready: failures(&["blue"]), ..none() };
        let (status, all) = (|| Some(ReconcileScope::status()), || Some(ReconcileScope::All));
        let rows: [Row<'_>; 11] = [
            ("nothing", &[], none(), &[], &[], None),
            ("a request of a template failed", &["blue"], none(), &[], &["blue"], status()),
            ("an object was not written", &[], write.clone(), &[], &["blue"], status()),
            ("a release is still needed", &[], needed, &[], &["blue"], status()),
            ("an object was not deleted", &[], delete, &[], &["blue"], status()),
            ("an object without a cluster was not deleted", &[], nameless, &[], &[], all()),
            ("both", &[], both, &[], &["blue"], all()),
            ("the watch lags behind", &[], none(), &["green"], &["green"], None),
            ("all at once", &["red"], write, &["green"], &["blue", "green", "red"], status()),
            ("a template is wrong: only an event helps", &[], template, &[], &[], None),
            ("a release is not ready: only an event helps", &[], not_ready, &[], &[], None),
        ];
        for (what, transient, summary, lagging, clusters, retry) in rows {
            let keys = |names: &[&str]| names.iter().copied().map(key).collect::<Vec<_>>();
            let found = unfinished(keys(transient), &summary, keys(lagging));
            let clusters = keys(clusters).into_iter().collect();
            assert_eq!(found, Unfinished { clusters, retry }, "{what}");
        }
    }
}
