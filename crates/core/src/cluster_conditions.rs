//! The conditions that Chandler writes to Clusters.

use chandler_api::{
    extensions::{ExtensionInstance, Lifecycle},
    reasons::{ClusterReason, ReleaseReason},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::ResourceExt;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    conditions::{NewCondition, Status},
    extension::ResolutionInput,
    placement::KubernetesFollower,
    release::unhealthy_object,
    resolution::{UpgradeOutcome, UpgradePlan},
};

/// Condition of a Cluster: all its add-ons are ready.
pub const ADDONS_READY: &str = "AddonsReady";
/// Condition of a Cluster: its add-ons do not block the next Kubernetes upgrade.
pub const ADDONS_UPGRADABLE: &str = "AddonsUpgradable";
/// Number of add-ons that one message names. The rest are counted.
const NAMED: usize = 5;
/// Problem of an add-on that has no release object on its cluster yet.
pub const NOT_INSTALLED: &str = "it is not installed on the cluster yet";
/// Problem of an add-on that is being installed or upgraded, or is going to be.
pub const CHANGE_PENDING: &str = "its last change is not installed yet";

/// An add-on of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    pub name: String,
    /// Why it is not ready. `None` means that it is ready.
    pub problem: Option<String>,
}

impl Addon {
    pub fn ready(name: &str) -> Self {
        Self { name: name.to_owned(), problem: None }
    }

    pub fn not_ready(name: &str, problem: &str) -> Self {
        Self { name: name.to_owned(), problem: Some(problem.to_owned()) }
    }

    /// Returns the add-on of a release object with this condition `Ready`. `None` means that its status does not describe its
    /// current spec yet.
    ///
    /// The problem is the same from the change of the spec to the end of the operation, so that the Cluster is not written for
    /// every step of it. The release object shows the steps. That of an unhealthy release names the object only: the release object
    /// also shows how many replicas it has.
    pub fn of_release(name: &str, ready: Option<&Condition>) -> Self {
        let Some(ready) = ready else { return Self::not_ready(name, CHANGE_PENDING) };
        match ReleaseReason::parse(&ready.reason) {
            _ if ready.status == "True" => Self::ready(name),
            Some(ReleaseReason::Preparing | ReleaseReason::Pending) => Self::not_ready(name, CHANGE_PENDING),
            Some(ReleaseReason::Unhealthy) => match unhealthy_object(&ready.message) {
                Some(object) => Self::not_ready(name, &format!("{object} is unhealthy")),
                None => Self::not_ready(name, &ready.message),
            },
            _ => Self::not_ready(name, &ready.message),
        }
    }
}

/// Returns the instances that were just applied and that the watch has not shown yet, as add-ons that are not ready.
pub fn pending_addons(applied: &[ExtensionInstance], existing: &[&ExtensionInstance]) -> Vec<Addon> {
    let exists = |name: &String| existing.iter().any(|instance| instance.name_any() == *name);
    let names = applied.iter().map(ResourceExt::name_any).filter(|name| !exists(name));
    names.map(|name| Addon::not_ready(&name, NOT_INSTALLED)).collect()
}

/// Returns the condition `AddonsReady`. `tunnel` says why a tunneled cluster is not connected, and comes first: its add-ons are
/// not ready because of that.
pub fn addons_ready(addons: &[Addon], tunnel: Option<&str>) -> NewCondition {
    let not_ready: Vec<_> = addons.iter().filter(|addon| addon.problem.is_some()).collect();
    if not_ready.is_empty() && tunnel.is_none() {
        return NewCondition {
            type_: ADDONS_READY,
            status: Status::True,
            reason: ClusterReason::Ready.into(),
            message: String::new(),
        };
    }
    let named = not_ready.iter().take(NAMED).map(|addon| match addon.problem.as_deref() {
        Some("") | None => addon.name.clone(),
        Some(problem) => format!("{}: {problem}", addon.name),
    });
    let more = not_ready.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("and {more} more"));
    let message = tunnel.map(str::to_owned).into_iter().chain(named).chain(rest);
    let reason = if tunnel.is_some() { ClusterReason::TunnelNotConnected } else { ClusterReason::NotReady };
    NewCondition {
        type_: ADDONS_READY,
        status: Status::False,
        reason: reason.into(),
        message: message.collect::<Vec<_>>().join("; "),
    }
}

/// Returns the condition `AddonsUpgradable`, for the announced Kubernetes version or else for the next minor version.
/// `followers` are the add-ons that no Extension has a version for.
/// `plan` is that of the extensions, see [`ResolutionInput::next_upgrade`].
pub fn addons_upgradable(
    input: &ResolutionInput,
    plan: &UpgradePlan,
    followers: &[KubernetesFollower],
) -> NewCondition {
    let (from, to) = input.next_upgrade();
    let depends_on_kubernetes = |name: &str| {
        let published = input.universe.extensions.get(name);
        published.is_none_or(|published| published.lifecycle != Lifecycle::Independent)
    };
    let reported = plan
        .steps
        .iter()
        .filter(|step| step.outcome != UpgradeOutcome::Stays || depends_on_kubernetes(&step.extension));
    let blocks: Vec<_> = followers.iter().filter_map(|follower| follower.blocks(&from, &to)).collect();
    let unread = input.unread_running();
    let is_blocked = plan.blocks() || !blocks.is_empty() || !unread.is_empty();
    let moves = followers.iter().filter_map(|follower| follower.moves(&from, &to));
    let reported: Vec<_> =
        reported.map(ToString::to_string).chain(blocks).chain(unread).chain(moves).collect();
    let (status, reason) = if is_blocked {
        (Status::False, ClusterReason::Blocked)
    } else {
        (Status::True, ClusterReason::Upgradable)
    };
    let message = format!("Kubernetes {}.{}: {}", to.major, to.minor, reported.join("; "));
    let message = message.trim_end_matches(": ").to_owned();
    NewCondition { type_: ADDONS_UPGRADABLE, status, reason: reason.into(), message }
}

/// Returns the conditions of a Cluster in the JSON form of the API server.
pub fn conditions_of(cluster: &Value) -> Vec<Condition> {
    cluster
        .pointer("/status/conditions")
        .and_then(|conditions| Vec::<Condition>::deserialize(conditions).ok())
        .unwrap_or_default()
}

/// Returns whether the Cluster's availability gates include `AddonsReady`.
pub fn gates_on_addons(cluster: &Value) -> bool {
    let gates = cluster.pointer("/spec/availabilityGates").and_then(Value::as_array);
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["conditionType"] == ADDONS_READY))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chandler_api::extensions::{ExtensionInstanceSpec, KUBERNETES_VERSIONS_ANNOTATION};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use semver::Version;
    use serde_json::json;

    use super::*;
    use crate::{extension::Kubernetes, placement::KubernetesVersions, resolution::Universe};

    #[test]
    fn add_ons_that_are_not_ready_are_named() {
        assert_eq!(addons_ready(&[Addon::ready("a")], None).status, Status::True);
        let many: Vec<_> = (0..7).map(|n| Addon::not_ready(&format!("a{n}"), "why")).collect();
        let condition = addons_ready(&many, None);
        assert_eq!(condition.status, Status::False);
        assert!(
            condition.message.starts_with("a0: why; a1") && condition.message.ends_with("; and 2 more"),
            "{condition:?}"
        );
    }

    #[test]
    fn a_tunnel_that_is_not_connected_is_named_first() {
        let problem = "tunnel not connected since 2026-11-16T10:00:00Z";
        for (addons, message) in [
            (vec![], problem.to_owned()),
            (vec![Addon::ready("a")], problem.to_owned()),
            (vec![Addon::not_ready("a", "why")], format!("{problem}; a: why")),
        ] {
            let condition = addons_ready(&addons, Some(problem));
            assert_eq!((condition.status, condition.message.as_str()), (Status::False, message.as_str()));
            assert_eq!(condition.reason, ClusterReason::TunnelNotConnected.into());
        }
    }

    #[test]
    fn a_change_of_a_release_is_one_problem_until_it_is_installed() {
        let ready = |status: &str, reason: &str, message: &str| Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let rows = [
            (None, Some(CHANGE_PENDING)),
            (Some(ready("False", "Preparing", "preparing release dns")), Some(CHANGE_PENDING)),
            (Some(ready("False", "Pending", "upgrading release dns")), Some(CHANGE_PENDING)),
            (Some(ready("False", "HelmReleasePending", "upgrading release dns")), Some(CHANGE_PENDING)),
            (Some(ready("False", "ApplyFailed", "timeout; retry at noon")), Some("timeout; retry at noon")),
            (
                Some(ready("False", "Unhealthy", "Deployment dns: 0 of 2")),
                Some("Deployment dns is unhealthy"),
            ),
            (
                Some(ready("False", "Unhealthy", "Deployment dns: 1 of 2")),
                Some("Deployment dns is unhealthy"),
            ),
            (Some(ready("False", "Unhealthy", "of another version")), Some("of another version")),
            (Some(ready("False", "Suspended", "it is suspended")), Some("it is suspended")),
            (Some(ready("False", "RolledBack", "it was rolled back")), Some("it was rolled back")),
            (Some(ready("Unknown", "ClusterUnreachable", "no answer")), Some("no answer")),
            (Some(ready("False", "OfAnotherVersion", "why")), Some("why")),
            (Some(ready("True", "Ready", "")), None),
        ];
        for (ready, problem) in rows {
            let addon = Addon::of_release("dns", ready.as_ref());
            assert_eq!((addon.name.as_str(), addon.problem.as_deref()), ("dns", problem), "{ready:?}");
        }
    }

    #[test]
    fn instances_that_were_just_applied_are_not_ready() {
        let [cni, dns] =
            ["cni", "dns"].map(|name| ExtensionInstance::new(name, ExtensionInstanceSpec::default()));
        let pending = pending_addons(&[cni.clone(), dns], &[&cni]);
        assert_eq!(pending, [Addon::not_ready("dns", NOT_INSTALLED)]);
        assert_eq!(addons_ready(&pending, None).status, Status::False);
    }

    #[test]
    fn availability_gates_are_read() {
        assert!(gates_on_addons(&json!({"spec": {"availabilityGates": [{"conditionType": "AddonsReady"}]}})));
        assert!(!gates_on_addons(&json!({"spec": {}})));
    }

    #[test]
    fn an_add_on_without_a_version_for_the_next_kubernetes_version_blocks_it() {
        let condition = |minor: u64| {
            let versions = BTreeMap::from([(
                KUBERNETES_VERSIONS_ANNOTATION.to_owned(),
                r#"{"1.34": "1.2.x", "1.35": "1.3.x"}"#.to_owned(),
            )]);
            let follower = KubernetesFollower {
                name: "cni".to_owned(),
                versions: KubernetesVersions::parse(&versions, "").unwrap(),
                requested: None,
                deployed: false,
                kept: None,
            };
            let input = ResolutionInput {
                universe: Universe::default(),
                requests: Vec::new(),
                invalid: BTreeMap::new(),
                platform: None,
                running: BTreeMap::new(),
                kubernetes: Kubernetes { current: Version::new(1, minor, 4), upgrade: None },
            };
            let (from, to) = input.next_upgrade();
            let condition = addons_upgradable(&input, &input.plan(&from, &to), &[follower]);
            (condition.status, condition.message)
        };
        let moves = "Kubernetes 1.35: cni 1.2.x moves to 1.3.x after the control plane";
        assert_eq!(condition(34), (Status::True, moves.to_owned()));
        let (status, message) = condition(35);
        assert_eq!(status, Status::False);
        assert!(message.starts_with("Kubernetes 1.36: cni blocks: "), "{message}");
    }
}
