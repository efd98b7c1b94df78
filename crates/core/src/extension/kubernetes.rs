//! The Kubernetes version of a cluster and the progress of its upgrade. Both are derived from API objects alone.

use chandler_api::extensions::UpgradeMoment;
use semver::Version;
use serde_json::Value;

use super::next_step;
use crate::resolution::parse_kubernetes_version;

/// JSON pointer to the annotation in which Cluster API stores the hooks that it has yet to call.
const PENDING_HOOKS: &str = "/metadata/annotations/runtime.cluster.x-k8s.io~1pending-hooks";

/// JSON pointer to the annotation in which Cluster API stores the version of the step that is in progress.
const UPGRADE_STEP: &str = "/metadata/annotations/topology.internal.cluster.x-k8s.io~1upgrade-step";

/// The hooks that end a step: Cluster API starts the next one when it has called them.
const STEP_HOOKS: [&str; 3] = ["AfterControlPlaneUpgrade", "BeforeWorkersUpgrade", "AfterWorkersUpgrade"];

/// The Kubernetes version of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The version of the control plane.
    pub current: Version,
    pub upgrade: Option<Upgrade>,
}

impl Kubernetes {
    /// Returns the minor version, and that of an upgrade, as text.
    pub fn minors(&self) -> String {
        let minor = |version: &Version| format!("{}.{}", version.major, version.minor);
        match &self.upgrade {
            Some(upgrade) => format!("{} to {}", minor(&self.current), minor(&upgrade.to)),
            None => minor(&self.current),
        }
    }
}

/// A step of an upgrade that is announced or in progress. An upgrade over several minor versions has a step for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub from: Version,
    pub to: Version,
    /// The last moment that the step has reached.
    pub reached: UpgradeMoment,
    /// The version of the step that follows, once the control plane has reached that of this one.
    ///
    /// The objects do not always show which of both steps it is: Cluster API announces the hooks of a step before it writes the
    /// version of this step to the control plane and to the Cluster. Until then, they look as at the end of the step before. So
    /// what has moved for the next step already must not move back.
    pub next: Option<Version>,
}

/// Reads the Kubernetes version from a Cluster and its control plane. Returns `None` if neither has a version.
pub fn kubernetes(cluster: &Value, control_plane: Option<&Value>) -> Option<Kubernetes> {
    let version = |object: Option<&Value>, path: &str| {
        object.and_then(|object| object.pointer(path)?.as_str()).and_then(parse_kubernetes_version)
    };
    // Cluster API writes the version of one step after another to the control plane.
    let step = version(control_plane, "/spec/version");
    let announced = version(Some(cluster), "/spec/topology/version").or_else(|| step.clone());
    let current = version(control_plane, "/status/version").or_else(|| announced.clone())?;
    // Cluster API announces the hooks of a step shortly before it writes the version of this step to the control plane.
    let is_starting = announced.as_ref().is_some_and(|announced| *announced > current)
        && version(Some(cluster), UPGRADE_STEP).as_ref() != Some(&current);
    let next = announced.filter(|announced| *announced > current);
    let next = next.map(|announced| next_step(&current, &announced));
    let upgrade = match (step, next) {
        (Some(step), _) if step > current => Some(before_control_plane(&current, step)),
        (_, next) if !is_starting && is_pending(cluster, &STEP_HOOKS) => {
            Some(after_control_plane(&current, next))
        }
        (_, Some(next)) => Some(before_control_plane(&current, next)),
        _ if workers_are_outdated(cluster) => Some(after_control_plane(&current, None)),
        _ => None,
    };
    Some(Kubernetes { current, upgrade })
}

fn before_control_plane(current: &Version, to: Version) -> Upgrade {
    Upgrade { from: current.clone(), to, reached: UpgradeMoment::BeforeControlPlane, next: None }
}

fn after_control_plane(current: &Version, next: Option<Version>) -> Upgrade {
    Upgrade {
        from: Version::new(current.major, current.minor.saturating_sub(1), 0),
        to: current.clone(),
        reached: UpgradeMoment::AfterControlPlane,
        next,
    }
}

/// Returns whether workers may be older than the control plane: Cluster API has not called the last hook of an upgrade
/// yet, or machines are still being rolled out.
fn workers_are_outdated(cluster: &Value) -> bool {
    let rolling_out = |condition: &Value| condition["type"] == "RollingOut" && condition["status"] == "True";
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    is_pending(cluster, &["AfterClusterUpgrade"]) || conditions.is_some_and(|all| all.iter().any(rolling_out))
}

/// Returns whether Cluster API has yet to call one of these hooks.
fn is_pending(cluster: &Value, hooks: &[&str]) -> bool {
    let pending = cluster.pointer(PENDING_HOOKS).and_then(Value::as_str).unwrap_or_default();
    pending.split(',').any(|hook| hooks.contains(&hook.trim()))
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
        let before = Some(before_control_plane(&minor(34), minor(35)));
        let after = Some(Upgrade { reached: UpgradeMoment::AfterControlPlane, ..before.clone().unwrap() });
        let (new, old) = ("v1.35.0", "v1.34.0");
        let rows = [
            ("no upgrade", at(Some(old), old, Some(old), json!({})), minor(34), None),
            ("not initialized", at(Some(old), old, None, json!({})), minor(34), None),
            ("announced", at(Some(new), old, Some(old), json!({})), minor(34), before.clone()),
            ("about to start", at(Some(new), old, Some(old), pending.clone()), minor(34), before.clone()),
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
        let current = Kubernetes { current: minor(34), upgrade: None };
        assert_eq!(current.minors(), "1.34");
        let upgrade = Some(before_control_plane(&minor(34), minor(35)));
        assert_eq!(Kubernetes { upgrade, ..current }.minors(), "1.34 to 1.35");
    }
    #[test]
    fn an_upgrade_over_several_minor_versions_is_handled_step_by_step() {
        let pending_at = |hooks: &str, step: &str| {
            json!({"metadata": {"annotations": {
                "runtime.cluster.x-k8s.io/pending-hooks": hooks,
                "topology.internal.cluster.x-k8s.io/upgrade-step": step,
            }}})
        };
        let before = |from: u64| Some(before_control_plane(&minor(from), minor(from + 1)));
        let after = |to: u64, next: Option<u64>| Some(after_control_plane(&minor(to), next.map(minor)));
        let all = "AfterClusterUpgrade,AfterControlPlaneUpgrade,AfterWorkersUpgrade";
        let workers = "AfterClusterUpgrade,AfterWorkersUpgrade";
        let (v34, v35, v36) = ("v1.34.0", "v1.35.0", "v1.36.0");
        let pending = |hooks: &str| pending_at(hooks, v35);
        let rows = [
            ("announced", v34, v34, json!({}), 34, before(34)),
            ("about to start", v34, v34, pending_at(all, ""), 34, before(34)),
            ("first step in progress", v35, v34, pending(all), 34, before(34)),
            ("first step done", v35, v35, pending(all), 35, after(35, Some(36))),
            ("workers of the first step", v35, v35, pending(workers), 35, after(35, Some(36))),
            ("before the second step", v35, v35, pending("AfterClusterUpgrade"), 35, before(35)),
            // The same objects as when the first step is done.
            ("second step about to start", v35, v35, pending(all), 35, after(35, Some(36))),
            ("only the Cluster is written", v35, v35, pending_at(all, v36), 35, before(35)),
            ("only the control plane is written", v36, v35, pending(all), 35, before(35)),
            ("second step in progress", v36, v35, pending_at(all, v36), 35, before(35)),
            ("second step done", v36, v36, pending_at(all, v36), 36, after(36, None)),
            ("workers", v36, v36, pending_at("AfterClusterUpgrade", v36), 36, after(36, None)),
            ("done", v36, v36, json!({}), 36, None),
        ];
        for (name, spec, status, cluster, current, upgrade) in rows {
            let found = at(Some(v36), spec, Some(status), cluster);
            assert_eq!(found, Some(Kubernetes { current: minor(current), upgrade }), "{name}");
        }
    }
}
