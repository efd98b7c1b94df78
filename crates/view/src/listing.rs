//! Builds the rows that `get` shows. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use chandler_api::reasons::ReleaseReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::fleet::{Fleet, Health, ObjectName, Placement, Release, State};

/// Limits the rows of a listing.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub cluster: Option<String>,
    pub not_ready: bool,
}

/// One add-on on one cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub namespace: String,
    pub cluster: String,
    pub add_on: String,
    /// Kind of the placement, or of the release object if it has no placement.
    pub kind: String,
    /// Name of the release object. `None` means that it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    pub state: State,
    /// The health of its objects. Unset if they are not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Whether it, its placement, or, if it has to change, its policy is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The AddonPolicy, as `NAME` or `platform/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    pub package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The commit at which the package was made, if it comes from a Source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The rows that match a filter, and a summary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    pub summary: Summary,
    pub releases: Vec<Row>,
}

/// Counts all add-ons of the selected clusters, including rows that are hidden because they are ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub clusters: usize,
    pub add_ons: usize,
    pub releases: usize,
    pub states: BTreeMap<&'static str, usize>,
}

impl Listing {
    pub fn new(fleet: &Fleet, filter: &Filter) -> Self {
        let placements: BTreeMap<&ObjectName, &Placement> =
            fleet.placements.iter().map(|placement| (&placement.object, placement)).collect();
        let release_rows = fleet.releases.iter().map(|release| release_row(release, &placements));
        let mut rows: Vec<Row> = release_rows.chain(missing_rows(fleet)).collect();
        rows.retain(|row| filter.cluster.as_ref().is_none_or(|cluster| row.cluster == *cluster));
        rows.sort_by(|a, b| {
            (&a.namespace, &a.cluster, &a.add_on, &a.kind).cmp(&(
                &b.namespace,
                &b.cluster,
                &b.add_on,
                &b.kind,
            ))
        });
        let summary = Summary::new(&rows);
        rows.retain(|row| !filter.not_ready || row.state != State::Ready);
        Self { summary, releases: rows }
    }
}

fn release_row(release: &Release, placements: &BTreeMap<&ObjectName, &Placement>) -> Row {
    let ready = release.ready();
    let placement = release.placement.as_ref().and_then(|(kind, name)| {
        let namespace = release.object.namespace.clone();
        placements.get(&ObjectName { kind: kind.clone(), namespace, name: name.clone() })
    });
    Row {
        namespace: release.object.namespace.clone(),
        cluster: release.cluster.clone(),
        add_on: release.add_on().to_owned(),
        kind: release.placement.as_ref().map_or(&release.object.kind, |(kind, _)| kind).clone(),
        release: Some(release.object.name.clone()),
        state: release.state(),
        health: release.health(),
        suspended: release.suspended
            || placement.is_some_and(|placement| placement.suspended)
            || release.reason() == Some(ReleaseReason::Suspended),
        policy: placement.and_then(|placement| placement.policy_name()),
        package: release.package.clone(),
        version: release.version().map(str::to_owned),
        revision: release.status.revision,
        commit: release.folder.as_ref().map(|folder| folder.revision.clone()),
        reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        since: ready.map(|ready| ready.last_transition_time.clone()),
    }
}

/// Returns a row for each cluster that a placement selects and that has no release object of this placement.
fn missing_rows(fleet: &Fleet) -> Vec<Row> {
    let existing: BTreeSet<_> = fleet
        .releases
        .iter()
        .filter_map(|release| {
            let (kind, name) = release.placement.as_ref()?;
            Some((&*release.object.namespace, &**kind, &**name, &*release.cluster))
        })
        .collect();
    let rows = |placement: &Placement| {
        let object = &placement.object;
        let clusters = placement.status.matching_clusters.iter().filter_map(|cluster| cluster.name.clone());
        let missing = clusters.filter(|cluster| {
            !existing.contains(&(&*object.namespace, &*object.kind, &*object.name, &**cluster))
        });
        missing.map(|cluster| missing_row(placement, cluster)).collect::<Vec<_>>()
    };
    fleet
        .placements
        .iter()
        .filter(|placement| placement.deletion_timestamp.is_none())
        .flat_map(rows)
        .collect()
}

fn missing_row(placement: &Placement, cluster: String) -> Row {
    let ready = placement.ready();
    Row {
        namespace: placement.object.namespace.clone(),
        cluster,
        add_on: placement.object.name.clone(),
        kind: placement.object.kind.clone(),
        release: None,
        state: State::Missing,
        health: None,
        suspended: placement.suspended,
        policy: placement.policy_name(),
        package: placement.package.clone(),
        version: placement.version.clone(),
        revision: None,
        commit: None,
        reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        since: ready.map(|ready| ready.last_transition_time.clone()),
    }
}

impl Summary {
    fn new(rows: &[Row]) -> Self {
        let clusters: BTreeSet<_> = rows.iter().map(|row| (&row.namespace, &row.cluster)).collect();
        let add_ons: BTreeSet<_> = rows.iter().map(|row| (&row.namespace, &row.kind, &row.add_on)).collect();
        let mut states = BTreeMap::new();
        for row in rows {
            *states.entry(row.state.as_str()).or_default() += 1;
        }
        Self { clusters: clusters.len(), add_ons: add_ons.len(), releases: rows.len(), states }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = State::ALL.iter().filter_map(|state| {
            self.states.get(state.as_str()).map(|count| format!("{count} {}", state.as_str().to_lowercase()))
        });
        write!(
            f,
            "{} on {}: {}",
            pluralize(self.add_ons, "add-on"),
            pluralize(self.clusters, "cluster"),
            states.collect::<Vec<_>>().join(", ")
        )
    }
}

fn pluralize(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{Reference, Scope};

    use super::*;
    use crate::fixtures::fleet;

    #[test]
    fn a_selected_cluster_without_a_release_object_is_missing() {
        let listing = Listing::new(&fleet(), &Filter::default());
        let rows: Vec<_> = listing
            .releases
            .iter()
            .map(|row| format!("{} {} {} {}", row.cluster, row.add_on, row.state, row.reason))
            .collect();
        assert_eq!(
            rows,
            [
                "alpha faulty Failed HelmInstallOrUpgradeFailed",
                "alpha hello Ready Ready",
                "bravo hello Missing NotAllReady",
            ]
        );
        assert_eq!(listing.summary.to_string(), "2 add-ons on 2 clusters: 1 ready, 1 missing, 1 failed");
    }

    #[test]
    fn rows_have_health_policy_and_suspension() {
        let mut fleet = fleet();
        fleet.placements[0].suspended = true;
        fleet.placements[0].policy = Some(Reference { name: "careful".to_owned(), scope: Scope::Platform });
        let healthy = serde_json::json!({
            "type": "Healthy", "status": "True", "reason": "Healthy", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        fleet.releases[0].status.conditions.push(serde_json::from_value(healthy).unwrap());
        let rows = Listing::new(&fleet, &Filter::default()).releases;
        let shown: Vec<_> =
            rows.iter().map(|row| (row.health, row.suspended, row.policy.as_deref())).collect();
        let policy = Some("platform/careful");
        assert_eq!(shown, [(None, false, None), (Some(Health::Healthy), true, policy), (None, true, policy)]);
    }

    #[test]
    fn hidden_rows_are_counted() {
        let filter = Filter { not_ready: true, ..Filter::default() };
        let listing = Listing::new(&fleet(), &filter);
        assert_eq!(listing.releases.len(), 2);
        assert_eq!(listing.summary.releases, 3);
        let filter = Filter { cluster: Some("bravo".to_owned()), ..Filter::default() };
        assert_eq!(Listing::new(&fleet(), &filter).summary.releases, 1);
    }
}
