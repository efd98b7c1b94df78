//! What users have asked for about the rollout of a placement, with annotations.

use std::collections::BTreeSet;

use chandler_api::extensions::{
    ROLLOUT_ABORT_ANNOTATION, ROLLOUT_PAUSED_ANNOTATION, ROLLOUT_RESUME_AT_ANNOTATION,
    ROLLOUT_SKIP_ANNOTATION,
};
use jiff::Timestamp;
use kube_core::{Resource, ResourceExt as _};

use super::{RolloutRecord, RolloutTarget, target_of};
use crate::release::ReleaseKind;

/// What users have asked for about the rollout of a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutRequests {
    pub paused: bool,
    /// Failures until then do not count.
    pub resumed_at: Option<Timestamp>,
    /// Names of the clusters that are left out.
    pub skip: BTreeSet<String>,
    /// The targets that no release is updated to any more: see [`RolloutTarget`]'s `Display`. A digest of a spec alone means all
    /// targets with it.
    pub aborted: BTreeSet<String>,
}

impl RolloutRequests {
    pub fn of(placement: &impl Resource) -> Self {
        let annotation = |name: &str| placement.annotations().get(name).map(String::as_str);
        let list = |name: &str| -> BTreeSet<String> {
            let items = annotation(name).unwrap_or_default().split(',').map(str::trim);
            items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        Self {
            paused: annotation(ROLLOUT_PAUSED_ANNOTATION) == Some("true"),
            resumed_at: annotation(ROLLOUT_RESUME_AT_ANNOTATION).and_then(|text| text.parse().ok()),
            skip: list(ROLLOUT_SKIP_ANNOTATION),
            aborted: list(ROLLOUT_ABORT_ANNOTATION),
        }
    }

    /// Returns whether no release is updated to a target any more.
    pub fn aborts(&self, target: &RolloutTarget) -> bool {
        !self.aborted.is_empty()
            && (self.aborted.contains(&target.spec) || self.aborted.contains(&target.to_string()))
    }
}

/// Returns the revision that a release is rolled back to because the rollout that has updated it was aborted.
pub fn aborted_revision<R: ReleaseKind>(placement: &impl Resource, release: &R) -> Option<u32> {
    if !placement.annotations().contains_key(ROLLOUT_ABORT_ANNOTATION) {
        return None;
    }
    let from = RolloutRecord::of(release)?.from.filter(|from| *from > 0)?;
    RolloutRequests::of(placement).aborts(&target_of(release)?).then_some(from)
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
    use serde_json::{Value, json};

    use super::*;

    fn placement(annotations: &Value) -> HelmChartProxy {
        serde_json::from_value(json!({
            "metadata": {"name": "hello", "annotations": annotations},
            "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap()
    }

    fn release(annotations: &Value) -> HelmReleaseProxy {
        serde_json::from_value(json!({
            "metadata": {"name": "hello-blue", "annotations": annotations},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": "2.0.0"},
        }))
        .unwrap()
    }

    #[test]
    fn annotations_are_parsed() {
        assert_eq!(RolloutRequests::of(&placement(&json!({}))), RolloutRequests::default());
        let all = json!({
            "chandler.dev/rollout-paused": "true", "chandler.dev/rollout-resume-at": "2026-01-01T00:00:00Z",
            "chandler.dev/rollout-skip": "a, b,", "chandler.dev/rollout-abort": "t1",
        });
        let expected = RolloutRequests {
            paused: true,
            resumed_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            skip: ["a", "b"].map(str::to_owned).into(),
            aborted: ["t1"].map(str::to_owned).into(),
        };
        assert_eq!(RolloutRequests::of(&placement(&all)), expected);
        let odd = json!({"chandler.dev/rollout-paused": "no", "chandler.dev/rollout-resume-at": "soon"});
        assert_eq!(RolloutRequests::of(&placement(&odd)), RolloutRequests::default());
    }

    #[test]
    fn a_release_that_an_aborted_rollout_has_updated_is_rolled_back() {
        let with_record = |from: Option<u32>| {
            let mut release = release(&json!({}));
            let spec = "a1".to_owned();
            RolloutRecord { spec, from, ..RolloutRecord::default() }.set(&mut release);
            release
        };
        let target = target_of(&with_record(None)).unwrap().to_string();
        let aborted = |targets: &str| placement(&json!({"chandler.dev/rollout-abort": targets}));
        let rows = vec![
            (aborted(&target), with_record(Some(4)), Some(4), "it was updated"),
            (aborted(&format!("other,{target}")), with_record(Some(4)), Some(4), "one of several targets"),
            (aborted(&target), with_record(None), None, "it was installed with this target"),
            (aborted("a1"), with_record(Some(4)), Some(4), "all targets of the spec"),
            (aborted(&target), with_record(Some(0)), None, "the revision is not known"),
            (aborted("other"), with_record(Some(4)), None, "another rollout"),
            (placement(&json!({})), with_record(Some(4)), None, "nothing was aborted"),
            (aborted(&target), release(&json!({})), None, "no rollout"),
        ];
        for (placement, release, expected, why) in rows {
            assert_eq!(aborted_revision(&placement, &release), expected, "{why}");
        }
    }
}
