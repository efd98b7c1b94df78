//! What users have asked for with annotations: of a placement about its rollout, of a release object about a rollback.

use std::collections::BTreeSet;

use chandler_api::extensions::{
    ROLLBACK_ANNOTATION, ROLLOUT_ABORT_ANNOTATION, ROLLOUT_PAUSED_ANNOTATION, ROLLOUT_RESUMED_ANNOTATION,
    ROLLOUT_SKIP_ANNOTATION,
};
use jiff::Timestamp;
use kube_core::{Resource, ResourceExt as _};

use super::{Mark, target_of};
use crate::{digest::InputDigest, release::ReleaseKind};

/// What users have asked for about the rollout of a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub paused: bool,
    /// Failures until then do not count.
    pub resumed_at: Option<Timestamp>,
    /// Names of the clusters that are left out.
    pub skip: BTreeSet<String>,
    /// The targets that nothing moves to any more.
    pub aborted: BTreeSet<String>,
}

impl Requests {
    pub fn of(placement: &impl Resource) -> Self {
        let annotation = |name: &str| placement.annotations().get(name).map(String::as_str);
        let list = |name: &str| -> BTreeSet<String> {
            let items = annotation(name).unwrap_or_default().split(',').map(str::trim);
            items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        Self {
            paused: annotation(ROLLOUT_PAUSED_ANNOTATION) == Some("true"),
            resumed_at: annotation(ROLLOUT_RESUMED_ANNOTATION).and_then(|text| text.parse().ok()),
            skip: list(ROLLOUT_SKIP_ANNOTATION),
            aborted: list(ROLLOUT_ABORT_ANNOTATION),
        }
    }
}

/// Returns the revision that a release is rolled back to because the rollout that has moved it was aborted.
pub fn aborted_revision<R: ReleaseKind>(placement: &impl Resource, release: &R) -> Option<u32> {
    if !placement.annotations().contains_key(ROLLOUT_ABORT_ANNOTATION) {
        return None;
    }
    let from = Mark::of(release)?.from?;
    let target = target_of(release)?.to_string();
    Requests::of(placement).aborted.contains(&target).then_some(from)
}

/// Returns the revision that a user wants to restore, and the inputs that it replaces.
pub fn requested_rollback(release: &impl Resource) -> Option<(u32, InputDigest)> {
    let (revision, inputs) = release.annotations().get(ROLLBACK_ANNOTATION)?.split_once('.')?;
    Some((revision.parse().ok()?, InputDigest::parse(inputs)?))
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
        assert_eq!(Requests::of(&placement(&json!({}))), Requests::default());
        let all = json!({
            "chandler.dev/rollout-paused": "true", "chandler.dev/rollout-resume-at": "2026-01-01T00:00:00Z",
            "chandler.dev/rollout-skip": "a, b,", "chandler.dev/rollout-abort": "t1",
        });
        let expected = Requests {
            paused: true,
            resumed_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            skip: ["a", "b"].map(str::to_owned).into(),
            aborted: ["t1"].map(str::to_owned).into(),
        };
        assert_eq!(Requests::of(&placement(&all)), expected);
        let odd = json!({"chandler.dev/rollout-paused": "no", "chandler.dev/rollout-resume-at": "soon"});
        assert_eq!(Requests::of(&placement(&odd)), Requests::default());
    }

    #[test]
    fn a_release_that_an_aborted_rollout_has_moved_is_rolled_back() {
        let marked = |from: Option<u32>| {
            let mut release = release(&json!({}));
            let spec = "a1".to_owned();
            Mark { spec, at: Timestamp::UNIX_EPOCH, from, kubernetes: None }.set(&mut release);
            release
        };
        let target = target_of(&marked(None)).unwrap().to_string();
        let aborted = |targets: &str| placement(&json!({"chandler.dev/rollout-abort": targets}));
        let rows = [
            (aborted(&target), marked(Some(4)), Some(4), "it was moved"),
            (aborted(&format!("other,{target}")), marked(Some(4)), Some(4), "one of several targets"),
            (aborted(&target), marked(None), None, "it was installed with this target"),
            (aborted("other"), marked(Some(4)), None, "another rollout"),
            (placement(&json!({})), marked(Some(4)), None, "nothing was aborted"),
            (aborted(&target), release(&json!({})), None, "no rollout"),
        ];
        for (placement, release, expected, why) in rows {
            assert_eq!(aborted_revision(&placement, &release), expected, "{why}");
        }
    }

    #[test]
    fn a_rollback_names_a_revision_and_the_inputs_that_it_replaces() {
        let inputs = "c".repeat(40);
        let of = |text: &str| requested_rollback(&release(&json!({"chandler.dev/rollback-to": text})));
        assert_eq!(of(&format!("3.{inputs}")), Some((3, InputDigest::parse(&inputs).unwrap())));
        for bad in ["3", "", "x.y", "3."] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(requested_rollback(&release(&json!({}))), None);
    }
}
