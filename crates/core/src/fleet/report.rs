//! The status of the FleetAddonConfig.

use chandler_api::{
    addons::{FleetAddonConfigSpec, FleetAddonConfigStatus},
    reasons::FleetReason,
};
use jiff::Timestamp;

use crate::conditions::{NewCondition, Status, merge};

const READY: &str = "Ready";
const SUPPORTED: &str = "Supported";

/// The state of the hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetState {
    Ready,
    /// A kind of Fleet cannot be listed, for this reason.
    NotInstalled(String),
    /// The config cannot be used, for this reason.
    Invalid(String),
}

/// Returns the status of a config. `spec` is `None` if it cannot be parsed.
pub fn report(
    old: &FleetAddonConfigStatus,
    spec: Option<&FleetAddonConfigSpec>,
    state: &FleetState,
    generation: Option<i64>,
    now: Timestamp,
) -> FleetAddonConfigStatus {
    let supported = spec.and_then(not_acted_upon).map(|message| NewCondition {
        type_: SUPPORTED,
        status: Status::False,
        reason: FleetReason::NotSupported.into(),
        message,
    });
    let new = [ready(state)].into_iter().chain(supported).collect();
    FleetAddonConfigStatus {
        installed_version: None,
        conditions: merge(&old.conditions, new, generation, now),
    }
}

/// Returns whether a status already has the conditions of a new one. Conditions of other types do not matter.
pub fn is_reported(old: &FleetAddonConfigStatus, new: &FleetAddonConfigStatus) -> bool {
    let is_own = |type_: &str| type_ == READY || type_ == SUPPORTED;
    let own: Vec<_> = old.conditions.iter().filter(|condition| is_own(&condition.type_)).collect();
    own.len() == new.conditions.len() && new.conditions.iter().all(|condition| own.contains(&condition))
}

fn ready(state: &FleetState) -> NewCondition {
    let (status, reason, message) = match state {
        FleetState::Ready => (Status::True, FleetReason::Ready, String::new()),
        FleetState::NotInstalled(why) => (
            Status::False,
            FleetReason::FleetNotInstalled,
            format!(
                "{why}; install Fleet, for example its charts fleet-crd and fleet; Chandler continues as soon as it is \
                 there"
            ),
        ),
        FleetState::Invalid(why) => (
            Status::False,
            FleetReason::InvalidSpec,
            format!("{why}; until it is corrected, no object of Fleet is created or changed"),
        ),
    };
    NewCondition { type_: READY, status, reason: reason.into(), message }
}

/// Returns a message about the fields that Chandler does not act upon, or `None` if none of them is set.
fn not_acted_upon(spec: &FleetAddonConfigSpec) -> Option<String> {
    let config = spec.config.as_ref();
    let set = [
        ("spec.install", spec.install.is_some()),
        ("spec.config.server", config.is_some_and(|config| config.server.is_some())),
        ("spec.config.featureGates", config.is_some_and(|config| config.feature_gates.is_some())),
        (
            "spec.config.bootstrapLocalCluster",
            config.is_some_and(|config| config.bootstrap_local_cluster.is_some()),
        ),
    ];
    let fields: Vec<_> = set.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect();
    (!fields.is_empty()).then(|| {
        format!(
            "Chandler does not act upon {}: install and configure Fleet with its own charts",
            fields.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conditions(spec: Value, state: &FleetState) -> Vec<(String, String, String)> {
        let spec = serde_json::from_value(spec).unwrap();
        let now = Timestamp::from_second(1).unwrap();
        let status = report(&FleetAddonConfigStatus::default(), Some(&spec), state, Some(1), now);
        let row = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            (condition.type_.clone(), condition.reason.clone(), condition.message.clone())
        };
        status.conditions.iter().map(row).collect()
    }

    #[test]
    fn fields_that_are_not_acted_upon_are_named() {
        assert_eq!(conditions(json!({}), &FleetState::Ready).len(), 1);
        let all = conditions(
            json!({"install": {"followLatest": true}, "config": {"server": {"inferLocal": true}}}),
            &FleetState::Ready,
        );
        assert_eq!((all[0].0.as_str(), all[0].1.as_str()), ("Ready", "Ready"));
        assert_eq!((all[1].0.as_str(), all[1].1.as_str()), ("Supported", "NotSupported"));
        assert!(all[1].2.contains("spec.install, spec.config.server:"), "{}", all[1].2);
    }

    #[test]
    fn the_status_is_written_only_if_it_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let spec = |spec: Value| serde_json::from_value::<FleetAddonConfigSpec>(spec).unwrap();
        let (plain, installing) = (spec(json!({})), spec(json!({"install": {"followLatest": true}})));
        let state = FleetState::Ready;
        let old = report(&FleetAddonConfigStatus::default(), Some(&installing), &state, Some(1), at(1));
        assert!(is_reported(&old, &report(&old, Some(&installing), &state, Some(1), at(2))));
        assert!(!is_reported(&old, &report(&old, Some(&plain), &state, Some(1), at(2))), "one is removed");
        assert!(!is_reported(&FleetAddonConfigStatus::default(), &old));
        let mut with_others = old.clone();
        with_others.conditions[0].type_ = "RepoAdd".to_owned();
        with_others.conditions.extend(old.conditions[..1].to_vec());
        assert!(is_reported(&with_others, &old), "a condition of another type");
    }

    #[test]
    fn a_missing_fleet_and_an_invalid_config_are_reported() {
        let rows = [
            (
                FleetState::NotInstalled("Cluster is not served".to_owned()),
                "FleetNotInstalled",
                "install Fleet",
            ),
            (FleetState::Invalid("spec.cluster.selector is invalid".to_owned()), "InvalidSpec", "corrected"),
        ];
        for (state, reason, text) in rows {
            let all = conditions(json!({}), &state);
            assert_eq!(all[0].1, reason);
            assert!(all[0].2.contains(text), "{}", all[0].2);
        }
    }
}
