//! The Kubernetes version of a cluster and the progress of its upgrade. Both are derived from API objects alone.

use chandler_api::extensions::UpgradeMoment;
use semver::Version;
use serde_json::Value;

use crate::resolution::parse_kubernetes_version;

/// JSON pointer to the annotation in which Cluster API stores the hooks that it has yet to call.
const PENDING_HOOKS: &str = "/metadata/annotations/runtime.cluster.x-k8s.io~1pending-hooks";

/// The Kubernetes version of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The version of the control plane.
    pub current: Version,
    pub upgrade: Option<Upgrade>,
}

/// An upgrade that is announced or in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub from: Version,
    pub to: Version,
    /// The last moment that the upgrade has reached.
    pub reached: UpgradeMoment,
}

/// Reads the Kubernetes version from a Cluster and its control plane. Returns `None` if neither has a version.
pub fn kubernetes(cluster: &Value, control_plane: Option<&Value>) -> Option<Kubernetes> {
    let version = |object: Option<&Value>, path: &str| {
        object.and_then(|object| object.pointer(path)?.as_str()).and_then(parse_kubernetes_version)
    };
    let announced =
        version(Some(cluster), "/spec/topology/version").or(version(control_plane, "/spec/version"));
    let current = version(control_plane, "/status/version").or_else(|| announced.clone())?;
    let upgrade = match announced {
        Some(to) if to > current => {
            Some(Upgrade { from: current.clone(), to, reached: UpgradeMoment::BeforeControlPlane })
        }
        _ if workers_are_outdated(cluster) => Some(Upgrade {
            from: Version::new(current.major, current.minor.saturating_sub(1), 0),
            to: current.clone(),
            reached: UpgradeMoment::AfterControlPlane,
        }),
        _ => None,
    };
    Some(Kubernetes { current, upgrade })
}

/// Returns whether workers may be older than the control plane: Cluster API has not called the last hook of an upgrade
/// yet, or machines are still being rolled out.
fn workers_are_outdated(cluster: &Value) -> bool {
    let pending = cluster.pointer(PENDING_HOOKS).and_then(Value::as_str).unwrap_or_default();
    let rolling_out = |condition: &Value| condition["type"] == "RollingOut" && condition["status"] == "True";
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    pending.split(',').any(|hook| hook.trim() == "AfterClusterUpgrade")
        || conditions.is_some_and(|all| all.iter().any(rolling_out))
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
    fn an_upgrade_reaches_its_moments_in_order() {
        let pending = json!({"metadata": {"annotations":
            {"runtime.cluster.x-k8s.io/pending-hooks": "AfterClusterUpgrade,AfterControlPlaneUpgrade"}}});
        let rolling = json!({"status": {"conditions": [{"type": "RollingOut", "status": "True"}]}});
        let idle = json!({"status": {"conditions": [{"type": "RollingOut", "status": "False"}]}});
        let before =
            Some(Upgrade { from: minor(34), to: minor(35), reached: UpgradeMoment::BeforeControlPlane });
        let after = Some(Upgrade { reached: UpgradeMoment::AfterControlPlane, ..before.clone().unwrap() });
        let (new, old) = ("v1.35.0", "v1.34.0");
        let rows = [
            ("no upgrade", at(Some(old), old, Some(old), json!({})), minor(34), None),
            ("not initialized", at(Some(old), old, None, json!({})), minor(34), None),
            ("announced", at(Some(new), old, Some(old), json!({})), minor(34), before.clone()),
            (
                "control plane in progress",
                at(Some(new), new, Some(old), rolling.clone()),
                minor(34),
                before.clone(),
            ),
            ("workers outdated", at(Some(new), new, Some(new), pending), minor(35), after.clone()),
            ("done", at(Some(new), new, Some(new), idle), minor(35), None),
            ("without topology", at(None, new, Some(old), json!({})), minor(34), before),
            ("without topology, workers", at(None, new, Some(new), rolling), minor(35), after),
        ];
        for (name, found, current, upgrade) in rows {
            assert_eq!(found, Some(Kubernetes { current, upgrade }), "{name}");
        }
        assert_eq!(kubernetes(&json!({}), None), None);
    }
}
