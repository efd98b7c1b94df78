//! Decides which Kubernetes version a control plane runs.

use crate::assets::{KubernetesVersion, UnsupportedVersion};

/// The version to run, and why the requested version is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    /// `None` means that no version can run.
    pub(super) run: Option<KubernetesVersion>,
    pub(super) rejection: Option<String>,
}

/// Allows upgrades by one minor at a time. If the requested version is rejected, the current one keeps running.
pub(super) fn decide(
    current: Option<KubernetesVersion>,
    requested: Result<KubernetesVersion, UnsupportedVersion>,
) -> Decision {
    let requested = match requested {
        Ok(requested) => requested,
        Err(unsupported) => return Decision { run: current, rejection: Some(unsupported.to_string()) },
    };
    let rejection = current.and_then(|current| rejection(current, requested));
    let run = if rejection.is_some() { current } else { Some(requested) };
    Decision { run, rejection }
}

fn rejection(current: KubernetesVersion, requested: KubernetesVersion) -> Option<String> {
    if requested < current {
        Some(format!(
            "the control plane runs {current} and cannot be downgraded to {requested}: set the version to {current}"
        ))
    } else if requested.minor() > current.minor() + 1 {
        let next = current.minor() + 1;
        Some(format!(
            "the control plane runs {current} and cannot skip minors to {requested}: upgrade to v1.{next} first"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downgrades_skipped_minors_and_unsupported_versions_are_rejected() {
        use KubernetesVersion::{V1_34, V1_35, V1_36};
        for (current, requested, run, rejection) in [
            (None, "v1.34.4", Some(V1_34), None),
            (None, "v1.35.4", Some(V1_35), None),
            (None, "v1.30.0", None, Some("not v1.30.0")),
            (Some(V1_34), "v1.34.4", Some(V1_34), None),
            (Some(V1_34), "v1.35.4", Some(V1_35), None),
            (Some(V1_34), "v1.35.9", Some(V1_34), Some("not v1.35.9")),
            (Some(V1_35), "v1.36.3", Some(V1_36), None),
            (Some(V1_34), "v1.36.3", Some(V1_34), Some("cannot skip minors to v1.36.3")),
            (Some(V1_35), "v1.34.4", Some(V1_35), Some("cannot be downgraded to v1.34.4")),
        ] {
            let decision = decide(current, requested.parse());
            assert_eq!(decision.run, run, "{current:?} {requested}");
            assert_eq!(decision.rejection.is_some(), rejection.is_some(), "{decision:?}");
            assert!(rejection.is_none_or(|rejection| decision.rejection.unwrap().contains(rejection)));
        }
    }
}
