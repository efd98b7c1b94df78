//! Which Kubernetes a cluster runs, and where in an upgrade it is. All of it is read off objects, so that it is the same
//! whoever asks and whenever.

use chandler_api::extensions::UpgradeMoment;
use semver::Version;
use serde_json::Value;

use crate::resolution::parse_kubernetes_version;

/// Annotation in which Cluster API keeps the hooks that it has yet to call.
const PENDING_HOOKS: &str = "/metadata/annotations/runtime.cluster.x-k8s.io~1pending-hooks";

/// What is known of a cluster's Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// What the control plane runs.
    pub runs: Version,
    pub upgrade: Option<Upgrade>,
}

/// An upgrade that is announced or under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub from: Version,
    pub to: Version,
    /// The last moment that has come.
    pub reached: UpgradeMoment,
}

/// What a Cluster and its control plane, as the API server returns them, say about their Kubernetes.
pub fn kubernetes(cluster: &Value, control_plane: Option<&Value>) -> Option<Kubernetes> {
    let version = |object: Option<&Value>, path: &str| {
        object.and_then(|object| object.pointer(path)?.as_str()).and_then(parse_kubernetes_version)
    };
    let announced =
        version(Some(cluster), "/spec/topology/version").or(version(control_plane, "/spec/version"));
    let runs = version(control_plane, "/status/version").or_else(|| announced.clone())?;
    let upgrade = match announced {
        Some(to) if to > runs => {
            Some(Upgrade { from: runs.clone(), to, reached: UpgradeMoment::BeforeControlPlane })
        }
        _ if workers_follow(cluster) => Some(Upgrade {
            from: Version::new(runs.major, runs.minor.saturating_sub(1), 0),
            to: runs.clone(),
            reached: UpgradeMoment::AfterControlPlane,
        }),
        _ => None,
    };
    Some(Kubernetes { runs, upgrade })
}

/// Whether parts of the cluster are older than its control plane: Cluster API has not called the last hook of an upgrade,
/// or something is still being rolled out.
fn workers_follow(cluster: &Value) -> bool {
    let pending = cluster.pointer(PENDING_HOOKS).and_then(Value::as_str).unwrap_or_default();
    let rolls_out = |condition: &Value| condition["type"] == "RollingOut" && condition["status"] == "True";
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    pending.split(',').any(|hook| hook.trim() == "AfterClusterUpgrade")
        || conditions.is_some_and(|all| all.iter().any(rolls_out))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(topology: Option<&str>, spec: &str, status: Option<&str>, extra: Value) -> Option<Kubernetes> {
        let mut cluster = extra;
        if let Some(version) = topology {
            cluster["spec"] = json!({"topology": {"version": version}});
        }
        let plane = json!({"spec": {"version": spec}, "status": {"version": status}});
        kubernetes(&cluster, Some(&plane))
    }

    fn minor(minor: u64) -> Version {
        Version::new(1, minor, 0)
    }

    #[test]
    fn an_upgrade_goes_through_its_moments() {
        let pending = json!({"metadata": {"annotations":
            {"runtime.cluster.x-k8s.io/pending-hooks": "AfterClusterUpgrade,AfterControlPlaneUpgrade"}}});
        let rolling = json!({"status": {"conditions": [{"type": "RollingOut", "status": "True"}]}});
        let calm = json!({"status": {"conditions": [{"type": "RollingOut", "status": "False"}]}});
        let before =
            Some(Upgrade { from: minor(34), to: minor(35), reached: UpgradeMoment::BeforeControlPlane });
        let after = Some(Upgrade { reached: UpgradeMoment::AfterControlPlane, ..before.clone().unwrap() });
        let (new, old) = ("v1.35.0", "v1.34.0");
        let rows = [
            ("quiet", at(Some(old), old, Some(old), json!({})), minor(34), None),
            ("not up yet", at(Some(old), old, None, json!({})), minor(34), None),
            ("announced", at(Some(new), old, Some(old), json!({})), minor(34), before.clone()),
            (
                "control plane on its way",
                at(Some(new), new, Some(old), rolling.clone()),
                minor(34),
                before.clone(),
            ),
            ("workers to follow", at(Some(new), new, Some(new), pending), minor(35), after.clone()),
            ("done", at(Some(new), new, Some(new), calm), minor(35), None),
            ("without topology", at(None, new, Some(old), json!({})), minor(34), before),
            ("without topology, workers", at(None, new, Some(new), rolling), minor(35), after),
        ];
        for (name, found, runs, upgrade) in rows {
            assert_eq!(found, Some(Kubernetes { runs, upgrade }), "{name}");
        }
        assert_eq!(kubernetes(&json!({}), None), None);
    }
}
