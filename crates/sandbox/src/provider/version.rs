//! Which version a control plane is to run, given the one it has and the one that is asked for.

use crate::assets::{KubernetesVersion, UnsupportedVersion};

/// What to run, and why that is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    /// `None`: nothing can be run.
    pub(super) run: Option<KubernetesVersion>,
    pub(super) refusal: Option<String>,
}

/// Upwards, and one minor at a time; what runs goes on when something else is asked for.
pub(super) fn decide(
    current: Option<KubernetesVersion>,
    asked: Result<KubernetesVersion, UnsupportedVersion>,
) -> Decision {
    let asked = match asked {
        Ok(asked) => asked,
        Err(unsupported) => return Decision { run: current, refusal: Some(unsupported.to_string()) },
    };
    let refusal = current.and_then(|current| refusal(current, asked));
    let run = if refusal.is_some() { current } else { Some(asked) };
    Decision { run, refusal }
}

fn refusal(current: KubernetesVersion, asked: KubernetesVersion) -> Option<String> {
    if asked < current {
        Some(format!("the control plane runs {current} and cannot go back to {asked}: ask for {current}"))
    } else if asked.minor() > current.minor() + 1 {
        let next = current.minor() + 1;
        Some(format!("the control plane runs {current} and cannot skip to {asked}: ask for v1.{next} first"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_up_only() {
        use KubernetesVersion::{V1_34, V1_35};
        for (current, asked, run, word) in [
            (None, "v1.34.4", Some(V1_34), None),
            (None, "v1.35.4", Some(V1_35), None),
            (None, "v1.30.0", None, Some("not v1.30.0")),
            (Some(V1_34), "v1.34.4", Some(V1_34), None),
            (Some(V1_34), "v1.35.4", Some(V1_35), None),
            (Some(V1_34), "v1.35.9", Some(V1_34), Some("not v1.35.9")),
            (Some(V1_35), "v1.34.4", Some(V1_35), Some("cannot go back to v1.34.4")),
        ] {
            let decision = decide(current, asked.parse());
            assert_eq!(decision.run, run, "{current:?} {asked}");
            assert_eq!(decision.refusal.is_some(), word.is_some(), "{decision:?}");
            assert!(word.is_none_or(|word| decision.refusal.unwrap().contains(word)));
        }
    }
}
