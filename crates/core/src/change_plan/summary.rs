//! Counts the changes of a plan.

use serde::Serialize;

use super::{ChangeAction, ObjectPlan};

/// How many clusters would change, counted once for each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    pub install: usize,
    pub upgrade: usize,
    pub replace: usize,
    pub remove: usize,
    pub unchanged: usize,
    pub failed: usize,
}

/// The result of a plan, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    NoChanges,
    Changes,
    /// A plan has failed, so that what would change is not known.
    Failed,
}

impl PlanSummary {
    /// Counts the clusters of objects. An object that failed counts as one cluster.
    pub fn of(objects: &[ObjectPlan]) -> Self {
        let mut summary = Self::default();
        for object in objects {
            summary.failed += usize::from(object.error.is_some());
            for cluster in &object.clusters {
                *match cluster.action.filter(|_| cluster.error.is_none()) {
                    Some(ChangeAction::Install) => &mut summary.install,
                    Some(ChangeAction::Upgrade) => &mut summary.upgrade,
                    Some(ChangeAction::Replace) => &mut summary.replace,
                    Some(ChangeAction::Remove) => &mut summary.remove,
                    Some(ChangeAction::Unchanged) => &mut summary.unchanged,
                    None => &mut summary.failed,
                } += 1;
            }
        }
        summary
    }

    pub fn outcome(self) -> PlanOutcome {
        let Self { install, upgrade, replace, remove, unchanged: _, failed } = self;
        if failed > 0 {
            PlanOutcome::Failed
        } else if install + upgrade + replace + remove > 0 {
            PlanOutcome::Changes
        } else {
            PlanOutcome::NoChanges
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_plan::ClusterPlan;

    fn plan(error: Option<&str>, clusters: Vec<ClusterPlan>) -> ObjectPlan {
        ObjectPlan {
            kind: "HelmChartProxy".to_owned(),
            namespace: "fleet".to_owned(),
            name: "hello".to_owned(),
            error: error.map(str::to_owned),
            clusters,
        }
    }

    #[test]
    fn a_failure_is_not_hidden_by_changes_and_no_change_by_nothing() {
        use PlanOutcome::{Changes, Failed, NoChanges};
        let unchanged = || ClusterPlan::unchanged("alpha", None);
        let changed = |action| ClusterPlan { action: Some(action), ..ClusterPlan::default() };
        let failed = || ClusterPlan::failed("bravo", &"unreachable");
        // An error after the action is known, for example of a diff.
        let partly = || ClusterPlan { action: Some(ChangeAction::Upgrade), ..failed() };
        let rows = [
            (vec![], NoChanges),
            (vec![plan(None, vec![])], NoChanges),
            (vec![plan(None, vec![unchanged()])], NoChanges),
            (vec![plan(None, vec![unchanged(), changed(ChangeAction::Upgrade)])], Changes),
            (vec![plan(None, vec![changed(ChangeAction::Install)])], Changes),
            (vec![plan(None, vec![changed(ChangeAction::Replace)])], Changes),
            (vec![plan(None, vec![changed(ChangeAction::Remove)])], Changes),
            (vec![plan(None, vec![changed(ChangeAction::Install), failed()])], Failed),
            (vec![plan(None, vec![partly()])], Failed),
            (vec![plan(Some("no selector"), vec![])], Failed),
        ];
        for (placements, expected) in rows {
            assert_eq!(PlanSummary::of(&placements).outcome(), expected, "{placements:?}");
        }
    }
}
