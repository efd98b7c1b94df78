//! What a Cluster says about its add-ons.

use chandler_api::{
    extensions::{ExtensionInstance, Lifecycle},
    reasons::ClusterReason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::ResourceExt;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    conditions::{Status, Wanted},
    extension::ResolutionInput,
    resolution::Outcome,
};

/// Condition of a Cluster: all its add-ons are ready.
pub const ADDONS_READY: &str = "AddonsReady";
/// Condition of a Cluster: its add-ons let the next Kubernetes in.
pub const ADDONS_UPGRADABLE: &str = "AddonsUpgradable";
/// Add-ons named in one message; the rest are counted.
const NAMED: usize = 5;

/// An add-on of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    pub name: String,
    /// None: it is ready.
    pub trouble: Option<String>,
}

impl Addon {
    pub fn ready(name: &str) -> Self {
        Self { name: name.to_owned(), trouble: None }
    }

    pub fn not_ready(name: &str, why: &str) -> Self {
        Self { name: name.to_owned(), trouble: Some(why.to_owned()) }
    }
}

/// What is given to a cluster just now: no watch has told of it, and nobody may take it for ready.
pub fn arriving(given: &[ExtensionInstance], there: &[&ExtensionInstance]) -> Vec<Addon> {
    let is_there = |name: &String| there.iter().any(|instance| instance.name_any() == *name);
    let names = given.iter().map(ResourceExt::name_any).filter(|name| !is_there(name));
    names.map(|name| Addon::not_ready(&name, "it is not on the cluster yet")).collect()
}

/// Whether all add-ons of a cluster are ready.
pub fn addons_ready(addons: &[Addon]) -> Wanted {
    let troubled: Vec<_> = addons.iter().filter(|addon| addon.trouble.is_some()).collect();
    if troubled.is_empty() {
        return Wanted {
            type_: ADDONS_READY,
            status: Status::True,
            reason: ClusterReason::Ready.into(),
            message: String::new(),
        };
    }
    let named = troubled.iter().take(NAMED).map(|addon| match addon.trouble.as_deref() {
        Some("") | None => addon.name.clone(),
        Some(why) => format!("{}: {why}", addon.name),
    });
    let more = troubled.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("and {more} more"));
    let message = named.chain(rest).collect::<Vec<_>>().join("; ");
    Wanted { type_: ADDONS_READY, status: Status::False, reason: ClusterReason::NotReady.into(), message }
}

/// What the next Kubernetes would mean: the one that is announced, else the next minor.
pub fn upgradable(input: &ResolutionInput) -> Wanted {
    let (from, to) = input.next_upgrade();
    let plan = input.plan(&from, &to);
    let tied = |name: &str| {
        let published = input.universe.extensions.get(name);
        published.is_none_or(|published| published.lifecycle != Lifecycle::Independent)
    };
    let told = plan.steps.iter().filter(|step| step.outcome != Outcome::Stays || tied(&step.extension));
    let told: Vec<_> = told.map(ToString::to_string).collect();
    let (status, reason) = if plan.blocks() {
        (Status::False, ClusterReason::Blocked)
    } else {
        (Status::True, ClusterReason::Upgradable)
    };
    let message = format!("Kubernetes {}.{}: {}", to.major, to.minor, told.join("; "));
    let message = message.trim_end_matches(": ").to_owned();
    Wanted { type_: ADDONS_UPGRADABLE, status, reason: reason.into(), message }
}

/// The conditions of a Cluster, as the API server returns it.
pub fn conditions_of(cluster: &Value) -> Vec<Condition> {
    cluster
        .pointer("/status/conditions")
        .and_then(|conditions| Vec::<Condition>::deserialize(conditions).ok())
        .unwrap_or_default()
}

/// Whether a Cluster is available only if its add-ons are ready.
pub fn gates(cluster: &Value) -> bool {
    let gates = cluster.pointer("/spec/availabilityGates").and_then(Value::as_array);
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["conditionType"] == ADDONS_READY))
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::ExtensionInstanceSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_ready_is_named() {
        assert_eq!(addons_ready(&[Addon::ready("a")]).status, Status::True);
        let many: Vec<_> = (0..7).map(|n| Addon::not_ready(&format!("a{n}"), "why")).collect();
        let told = addons_ready(&many);
        assert_eq!(told.status, Status::False);
        assert!(
            told.message.starts_with("a0: why; a1") && told.message.ends_with("; and 2 more"),
            "{told:?}"
        );
    }

    #[test]
    fn what_is_given_just_now_is_not_ready() {
        let [cni, dns] =
            ["cni", "dns"].map(|name| ExtensionInstance::new(name, ExtensionInstanceSpec::default()));
        let arriving = arriving(&[cni.clone(), dns], &[&cni]);
        assert_eq!(arriving, [Addon::not_ready("dns", "it is not on the cluster yet")]);
        assert_eq!(addons_ready(&arriving).status, Status::False);
    }

    #[test]
    fn gates_are_read_off_the_cluster() {
        assert!(gates(&json!({"spec": {"availabilityGates": [{"conditionType": "AddonsReady"}]}})));
        assert!(!gates(&json!({"spec": {}})));
    }
}
