//! Builds what `describe` shows of a placement, a release or a cluster. Pure.

mod resource_argument;

use chandler_api::status::{FailureRecord, ObjectRecord, RevisionRecord};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

pub use self::resource_argument::{FoundResource, ResourceArgument};
use crate::fleet::{Fleet, Health, ObjectName, Placement, Release, State, next_step};

/// The object to describe cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown kind `{kind}`: use hcp, exti, hrp, ar or release before the `/`")]
    UnknownKind { kind: String },
    #[error(
        "`{name}` not found in namespace {namespace}; list all add-ons with `chandler get --all-namespaces`"
    )]
    NotFound { name: String, namespace: String },
    #[error("`{name}` is ambiguous: use {}", candidates.join(" or "))]
    Ambiguous { name: String, candidates: Vec<String> },
    #[error("no add-ons found on cluster `{cluster}` in namespace {namespace}")]
    NoAddOns { cluster: String, namespace: String },
}

/// A description of a placement, a release, or a cluster.
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
    /// The AddonPolicy, as `NAME` or `platform/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Whether its own annotation suspends it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_clusters: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    pub conditions: Vec<Condition>,
    /// Selected clusters without a release object.
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
    /// Namespace and name of the release on the workload cluster, joined by `/`.
    pub release: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The commit at which the package was made, if it comes from a Source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Helm's status of the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The health of its objects. Unset if they are not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Whether its own annotation suspends it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// What the user should do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory_revision: Option<u32>,
    pub inventory: Vec<ObjectRecord>,
    pub history: Vec<RevisionRecord>,
}

impl Description {
    /// Describes a placement and its releases. If a cluster is given, only the releases on that cluster are included.
    pub fn of_placement(fleet: &Fleet, placement: &Placement, cluster: Option<&str>) -> Self {
        let is_included = |name: &str| cluster.is_none_or(|cluster| cluster == name);
        let owned: Vec<&Release> =
            fleet.releases.iter().filter(|release| release.belongs_to(placement)).collect();
        let selected = placement.status.matching_clusters.iter().filter_map(|cluster| cluster.name.clone());
        let missing = selected
            .filter(|name| is_included(name) && owned.iter().all(|release| release.cluster != *name))
            .collect();
        Self {
            placement: Some(PlacementView {
                object: placement.object.clone(),
                package: placement.package.clone(),
                version: placement.version.clone(),
                policy: placement.policy_name(),
                suspended: placement.suspended,
                ready_clusters: placement.status.ready_clusters.clone(),
                deletion_timestamp: placement.deletion_timestamp.map(Time),
                conditions: placement.status.conditions.clone(),
                missing,
            }),
            cluster: cluster.map(str::to_owned),
            releases: sorted_views(owned.into_iter().filter(|release| is_included(&release.cluster))),
        }
    }

    /// Describes a single release.
    pub fn of_release(release: &Release) -> Self {
        Self { placement: None, cluster: None, releases: vec![ReleaseView::new(release)] }
    }

    /// Describes all releases on a cluster. Fails if there are none.
    pub fn of_cluster(fleet: &Fleet, namespace: &str, cluster: &str) -> Result<Self, Error> {
        let releases = sorted_views(fleet.releases.iter().filter(|release| release.cluster == cluster));
        if releases.is_empty() {
            let (cluster, namespace) = (cluster.to_owned(), namespace.to_owned());
            return Err(Error::NoAddOns { cluster, namespace });
        }
        Ok(Self { placement: None, cluster: Some(cluster.to_owned()), releases })
    }
}

fn sorted_views<'a>(releases: impl Iterator<Item = &'a Release>) -> Vec<ReleaseView> {
    let mut releases: Vec<_> = releases.map(ReleaseView::new).collect();
    releases.sort_by(|a, b| (&a.cluster, &a.add_on, &a.object).cmp(&(&b.cluster, &b.add_on, &b.object)));
    releases
}

impl ReleaseView {
    fn new(release: &Release) -> Self {
        let status = &release.status;
        let deletion_timestamp = release.deletion_timestamp.map(Time);
        Self {
            object: release.object.clone(),
            add_on: release.add_on().to_owned(),
            cluster: release.cluster.clone(),
            state: release.state(),
            package: release.package.clone(),
            version: release.version().map(str::to_owned),
            release: release.release_name.clone(),
            revision: status.revision,
            commit: release.folder.as_ref().map(|folder| folder.revision.clone()),
            status: status.status.clone(),
            health: release.health(),
            suspended: release.suspended,
            finalizers: if deletion_timestamp.is_some() { release.finalizers.clone() } else { Vec::new() },
            deletion_timestamp,
            conditions: status.conditions.clone(),
            last_failure: status.last_failure.clone(),
            next_retry: release.next_retry().map(Time),
            next_step: next_step(release),
            inventory_revision: status.inventory_revision,
            inventory: status.inventory.to_vec(),
            history: status.history.clone(),
        }
    }
}
