//! Checks whether runtime hooks are registered and respond. Without them, Cluster API upgrades and deletes Clusters without asking.

use anyhow::{Context as _, Result};
use chandler_hooks::Hook;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::Finding;

const CHECK: &str = "hooks";
/// How to enable hooks.
const ENABLE: &str = "to make upgrades and deletions of Clusters with a topology wait for add-ons, enable the feature gates \
                      RuntimeSDK and ClusterTopology of Cluster API, and start the manager with --hooks-endpoint (value \
                      hooks.enabled of the chart)";
const NEXT_STEP: &str = "start the manager with the same --hooks-endpoint and check that Cluster API can reach it; if \
                         Chandler is uninstalled, run `chandler hooks unregister`";

/// Checks the ExtensionConfigs of managers for this namespace. `None` means all namespaces. `has_leader` is whether
/// such a manager holds its leader election Lease.
pub async fn check(client: &Client, namespace: Option<&str>, has_leader: bool) -> Result<Vec<Finding>> {
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let configs = match configs.list(&ListParams::default()).await {
        // Cluster API is not installed, or has no runtime extensions.
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            return Ok(vec![off("Cluster API does not serve ExtensionConfigs")]);
        }
        listed => listed.context("listing ExtensionConfigs")?,
    };
    let relevant: Vec<_> =
        configs.iter().filter(|config| is_relevant(&config.name_any(), namespace)).collect();
    if relevant.is_empty() {
        return Ok(vec![off("no ExtensionConfig of Chandler is registered")]);
    }
    Ok(relevant.into_iter().map(|config| evaluate(config, has_leader)).collect())
}

/// Returns the finding that hooks are off. That is not a problem: Chandler works without them.
fn off(reason: &str) -> Finding {
    let message = format!("hooks are off, because {reason}: upgrades and deletions of Clusters do not wait");
    Finding::warning(CHECK, message, ENABLE)
}

/// Returns whether this ExtensionConfig belongs to a manager for the namespace. Its name contains the manager's
/// `--namespace`.
fn is_relevant(name: &str, namespace: Option<&str>) -> bool {
    match (name.strip_prefix(chandler_hooks::EXTENSION_CONFIG), namespace) {
        (None, _) => false,
        (Some(""), _) => true,
        (Some(rest), None) => rest.starts_with('-'),
        (Some(rest), Some(namespace)) => {
            rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(namespace))
        }
    }
}

fn evaluate(config: &DynamicObject, has_leader: bool) -> Finding {
    let name = config.name_any();
    let conditions = config.data.pointer("/status/conditions").and_then(Value::as_array);
    let discovered = conditions.into_iter().flatten().find(|condition| condition["type"] == "Discovered");
    if let Some(condition) = discovered.filter(|condition| condition["status"] == "False") {
        let reason = condition["message"].as_str().unwrap_or_default();
        let message = format!("Cluster API cannot reach the hooks of ExtensionConfig {name}: {reason}");
        return Finding::problem(CHECK, message, NEXT_STEP);
    }
    if !has_leader {
        let effect = match failure_policy(config) {
            "Fail" => "upgrades of Clusters are delayed",
            _ => "upgrades of Clusters do not wait for add-ons, and Cluster API does not start again",
        };
        let message = format!("ExtensionConfig {name} is registered but no manager is running: {effect}");
        return Finding::problem(CHECK, message, NEXT_STEP);
    }
    match discovered {
        Some(_) => Finding::ok(
            CHECK,
            format!(
                "Cluster API calls the hooks of ExtensionConfig {name}; if none answers before an upgrade: {}",
                failure_policy(config)
            ),
        ),
        None => Finding::warning(
            CHECK,
            format!(
                "Cluster API has not discovered the hooks of ExtensionConfig {name}, and does not call them"
            ),
            "check that Cluster API is running with the feature gates RuntimeSDK and ClusterTopology",
        ),
    }
}

/// Returns the failure policy of the hooks that run before an upgrade.
fn failure_policy(config: &DynamicObject) -> &str {
    let handlers = config.data.pointer("/status/handlers").and_then(Value::as_array);
    let before_upgrade = handlers
        .into_iter()
        .flatten()
        .find(|handler| handler["requestHook"]["hook"] == Hook::BeforeClusterUpgrade.name());
    before_upgrade.and_then(|handler| handler["failurePolicy"].as_str()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Severity;

    fn config(discovered: Option<&str>, policy: &str) -> DynamicObject {
        let conditions: Vec<_> = discovered
            .map(|status| json!({"type": "Discovered", "status": status, "message": "refused"}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": "chandler"},
            "status": {"conditions": conditions, "handlers": [
                {"requestHook": {"hook": "BeforeClusterDelete"}, "failurePolicy": "Ignore"},
                {"requestHook": {"hook": "BeforeClusterUpgrade"}, "failurePolicy": policy},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn hooks_that_do_not_respond_are_a_problem() {
        let rows = [
            (Some("True"), "Ignore", true, Severity::Ok, "before an upgrade: Ignore"),
            (Some("True"), "Fail", true, Severity::Ok, "before an upgrade: Fail"),
            (Some("True"), "Fail", false, Severity::Problem, "upgrades of Clusters are delayed"),
            (Some("True"), "Ignore", false, Severity::Problem, "do not wait for add-ons"),
            (Some("False"), "Ignore", true, Severity::Problem, "chandler: refused"),
            (None, "Ignore", true, Severity::Warning, "has not discovered"),
        ];
        for (discovered, policy, has_leader, severity, text) in rows {
            let found = evaluate(&config(discovered, policy), has_leader);
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.message.contains(text), "{found:?}");
        }
    }

    #[test]
    fn hooks_that_are_off_are_reported() {
        let found = off("no ExtensionConfig of Chandler is registered");
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.next_step.is_some_and(|step| step.contains("RuntimeSDK")));
    }

    #[test]
    fn extension_configs_belong_to_managers_by_name() {
        let all = ["chandler", "chandler-fleet", "chandlery"].map(|name| is_relevant(name, None));
        assert_eq!(all, [true, true, false]);
        let one =
            ["chandler", "chandler-fleet", "chandler-other"].map(|name| is_relevant(name, Some("fleet")));
        assert_eq!(one, [true, true, false]);
    }
}
