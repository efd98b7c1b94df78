//! From objects to all that is known of them, for `describe`. Pure.

mod target;

use chandler_api::status::{FailureRecord, ObjectRecord, RevisionRecord};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

pub use self::target::{Chosen, Target};
use crate::fleet::{Fleet, ObjectName, Placement, Release, State, advice};

/// Why there is nothing to describe.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no kind `{kind}` here: say hcp, instance, hrp, ar or release before the `/`")]
    UnknownKind { kind: String },
    #[error(
        "there is no `{name}` in namespace {namespace}: `chandler get --all-namespaces` shows what there is"
    )]
    NotFound { name: String, namespace: String },
    #[error("`{name}` may be several things: say {}", choices.join(" or "))]
    Ambiguous { name: String, choices: Vec<String> },
    #[error("there are no add-ons on a cluster `{cluster}` in namespace {namespace}")]
    NothingOnCluster { cluster: String, namespace: String },
}

/// What is described: a placement, a release, or a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub releases: Vec<ReleaseView>,
}

/// A placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementView {
    pub object: ObjectName,
    pub package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_clusters: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Time>,
    pub conditions: Vec<Condition>,
    /// Clusters that are selected and have no release object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A release.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseView {
    pub object: ObjectName,
    pub add_on: String,
    pub cluster: String,
    pub state: State,
    pub package: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Namespace and name on the workload cluster.
    pub release: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// In Helm's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Time>,
    /// What a person should do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory_revision: Option<u32>,
    pub inventory: Vec<ObjectRecord>,
    pub history: Vec<RevisionRecord>,
}

impl Description {
    /// A placement and its releases, on one cluster or all.
    pub fn of_placement(fleet: &Fleet, placement: &Placement, cluster: Option<&str>) -> Self {
        let object = &placement.object;
        let own = |release: &&Release| {
            release.object.namespace == object.namespace
                && release
                    .placement
                    .as_ref()
                    .is_some_and(|(kind, name)| (kind, name) == (&object.kind, &object.name))
        };
        let wanted = |name: &str| cluster.is_none_or(|cluster| cluster == name);
        let own: Vec<&Release> = fleet.releases.iter().filter(own).collect();
        let selected = placement.status.matching_clusters.iter().filter_map(|cluster| cluster.name.clone());
        let missing = selected
            .filter(|name| wanted(name) && own.iter().all(|release| release.cluster != *name))
            .collect();
        Self {
            placement: Some(PlacementView {
                object: object.clone(),
                package: placement.package.clone(),
                version: placement.version.clone(),
                ready_clusters: placement.status.ready_clusters.clone(),
                deleted: placement.deleted.map(Time),
                conditions: placement.status.conditions.clone(),
                missing,
            }),
            cluster: cluster.map(str::to_owned),
            releases: sorted(own.into_iter().filter(|release| wanted(&release.cluster))),
        }
    }

    pub fn of_release(release: &Release) -> Self {
        Self { placement: None, cluster: None, releases: vec![ReleaseView::of(release)] }
    }

    /// Everything on a cluster.
    pub fn of_cluster(fleet: &Fleet, namespace: &str, cluster: &str) -> Result<Self, Error> {
        let releases = sorted(fleet.releases.iter().filter(|release| release.cluster == cluster));
        if releases.is_empty() {
            let (cluster, namespace) = (cluster.to_owned(), namespace.to_owned());
            return Err(Error::NothingOnCluster { cluster, namespace });
        }
        Ok(Self { placement: None, cluster: Some(cluster.to_owned()), releases })
    }
}

fn sorted<'a>(releases: impl Iterator<Item = &'a Release>) -> Vec<ReleaseView> {
    let mut releases: Vec<_> = releases.map(ReleaseView::of).collect();
    releases.sort_by(|a, b| (&a.cluster, &a.add_on, &a.object).cmp(&(&b.cluster, &b.add_on, &b.object)));
    releases
}

impl ReleaseView {
    fn of(release: &Release) -> Self {
        let status = &release.status;
        let deleted = release.deleted.map(Time);
        Self {
            object: release.object.clone(),
            add_on: release.add_on().to_owned(),
            cluster: release.cluster.clone(),
            state: release.state(),
            package: release.package.clone(),
            version: release.version().map(str::to_owned),
            release: release.address.clone(),
            revision: status.revision,
            status: status.status.clone(),
            finalizers: if deleted.is_some() { release.finalizers.clone() } else { Vec::new() },
            deleted,
            conditions: status.conditions.clone(),
            last_failure: status.last_failure.clone(),
            next_try: release.next_try().map(Time),
            next: advice(release),
            inventory_revision: status.inventory_revision,
            inventory: status.inventory.clone(),
            history: status.history.clone(),
        }
    }
}
