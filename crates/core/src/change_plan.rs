//! What applying placements would change on clusters, as `chandler plan` and `chandler diff` show it.

mod diff;
mod mask;
mod next_operation;
mod part;
mod summary;

use std::fmt;

use chandler_api::{extensions::OnUnselect, status::ObjectRecord};
use serde::Serialize;
use serde_json::Value;

pub use self::{
    diff::{DiffText, DiffTexts, DiffView, ObjectChange, ObjectDiff, diff_objects},
    next_operation::{NextOperation, NextRemoval, RemovalEffect, next_operation, next_removal},
    part::PlanPart,
    summary::{PlanOutcome, PlanSummary},
};

/// An object of a release, as it is rendered or recorded.
#[derive(Clone, PartialEq, Eq)]
pub struct ReleaseObject {
    pub object: ObjectRecord,
    pub role: ObjectRole,
    pub content: Value,
}

/// Omits the content, which may be secret.
impl fmt::Debug for ReleaseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseObject")
            .field("object", &self.object)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// What an object is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ObjectRole {
    /// It is part of the release.
    #[default]
    Object,
    /// It is the object of a hook or of a test.
    Hook,
    /// The package has it outside its templates. It is usually a CRD.
    Crd,
}

/// What would happen to the release of a placement on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ChangeAction {
    Install,
    /// A new revision would be created.
    Upgrade,
    /// The release would be uninstalled, and installed again under another name or from another package.
    Replace,
    /// The cluster is no longer selected.
    Remove,
    Unchanged,
}

impl fmt::Display for ChangeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Unchanged => "unchanged",
        })
    }
}

/// What would change on one cluster, or why that is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlan {
    pub cluster: String,
    /// Namespace and name of the release, joined by `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// `None` means that it is unknown: see `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ChangeAction>,
    /// The version of the package that is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_version: Option<String>,
    /// What a removal does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unselect: Option<OnUnselect>,
    /// Why the operation would not start now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The objects that would change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectDiff>,
}

impl ClusterPlan {
    /// Returns the plan of a cluster about which nothing is known.
    pub fn failed(cluster: &str, error: &impl ToString) -> Self {
        Self { cluster: cluster.to_owned(), error: Some(error.to_string()), ..Self::default() }
    }

    /// Returns the plan of a cluster where nothing changes.
    pub fn unchanged(cluster: &str, note: Option<String>) -> Self {
        let action = Some(ChangeAction::Unchanged);
        Self { cluster: cluster.to_owned(), action, note, ..Self::default() }
    }
}

/// What would change on the clusters of one placement, or by the spec of one release object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Why nothing is known about its clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Sorted by name.
    pub clusters: Vec<ClusterPlan>,
}

/// An object of a file that is not part of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredObject {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Whether it could change what the manager does, because it is an object of Chandler.
    pub may_matter: bool,
}

/// What would change on clusters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// Placements, or a release object.
    pub objects: Vec<ObjectPlan>,
    /// Objects of the files that are not planned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<IgnoredObject>,
    pub summary: PlanSummary,
}

impl ChangePlan {
    pub fn new(objects: Vec<ObjectPlan>) -> Self {
        Self { summary: PlanSummary::of(&objects), ignored: Vec::new(), objects }
    }

    /// Returns the result for exit codes. If an object that may matter is ignored, the plan may be wrong.
    pub fn outcome(&self) -> PlanOutcome {
        if self.ignored.iter().any(|ignored| ignored.may_matter) {
            return PlanOutcome::Failed;
        }
        self.summary.outcome()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_object_of_chandler_is_a_failure() {
        let ignored = |may_matter| IgnoredObject {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "fleet".to_owned(),
            name: "hello".to_owned(),
            may_matter,
        };
        let plan = |ignored| ChangePlan { ignored, ..ChangePlan::new(Vec::new()) };
        assert_eq!(plan(vec![]).outcome(), PlanOutcome::NoChanges);
        assert_eq!(plan(vec![ignored(false)]).outcome(), PlanOutcome::NoChanges);
        assert_eq!(plan(vec![ignored(false), ignored(true)]).outcome(), PlanOutcome::Failed);
    }

    #[test]
    fn debug_output_has_no_content() {
        let object = ReleaseObject {
            object: ObjectRecord::default(),
            role: ObjectRole::Object,
            content: Value::from("canary"),
        };
        assert!(!format!("{object:?}").contains("canary"));
    }
}
