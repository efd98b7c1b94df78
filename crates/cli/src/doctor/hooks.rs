//! Checks whether runtime hooks are registered and respond. Without them, Cluster API upgrades and deletes Clusters without asking.

use anyhow::{Context as _, Result};
use chandler_hooks::{Discovery, Hook, discovery};
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
const NEXT_STEP: &str = "start the manager with the same --hooks-endpoint and check that Cluster API can reach it: the \
                         NetworkPolicy of the chart must admit its namespace (value networkPolicy.hooksFrom); if Chandler \
                         is uninstalled, run `chandler hooks unregister`";

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
/// `--namespace`, in lower case, and after that its `--watch-filter`.
fn is_relevant(name: &str, namespace: Option<&str>) -> bool {
    let begins_with = |text: &str, part: &str| {
        text.strip_prefix(part).filter(|rest| rest.is_empty() || rest.starts_with('-')).map(str::to_owned)
    };
    match (begins_with(name, chandler_hooks::EXTENSION_CONFIG).as_deref(), namespace) {
        (None, _) => false,
        (Some(""), _) | (Some(_), None) => true,
        (Some(rest), Some(namespace)) => {
            begins_with(rest, &format!("-{}", namespace.to_lowercase())).is_some()
        }
    }
}

fn evaluate(config: &DynamicObject, has_leader: bool) -> Finding {
    let name = config.name_any();
    let unanswered = unanswered(config);
    if !has_leader {
        let message = format!(
            "ExtensionConfig {name} is registered but no manager is running: {unanswered}, and Cluster API does not start \
             again"
        );
        return Finding::problem(CHECK, message, NEXT_STEP);
    }
    match discovery(config) {
        Discovery::Discovered => {
            let message = format!(
                "ExtensionConfig {name} is registered and discovered; if no manager answers, {unanswered}"
            );
            Finding::ok(CHECK, message)
        }
        Discovery::Failed(reason) => {
            let message = format!("Cluster API cannot reach the hooks of ExtensionConfig {name}: {reason}");
            Finding::problem(CHECK, message, NEXT_STEP)
        }
        Discovery::Pending => Finding::warning(
            CHECK,
            format!("Cluster API has not discovered the current hooks of ExtensionConfig {name}"),
            "check that Cluster API is running with the feature gates RuntimeSDK and ClusterTopology",
        ),
    }
}

/// Returns what happens if no manager answers.
fn unanswered(config: &DynamicObject) -> &'static str {
    match failure_policy(config) {
        Some("Ignore") => "upgrades start (failure policy Ignore)",
        Some("Fail") => "upgrades wait (failure policy Fail)",
        _ => "upgrades may start (failure policy unknown)",
    }
}

/// Returns the failure policy of the hooks that run before an upgrade.
fn failure_policy(config: &DynamicObject) -> Option<&str> {
    let handlers = config.data.pointer("/status/handlers").and_then(Value::as_array);
    let before_upgrade = handlers
        .into_iter()
        .flatten()
        .find(|handler| handler["requestHook"]["hook"] == Hook::BeforeClusterUpgrade.name());
    before_upgrade.and_then(|handler| handler["failurePolicy"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Severity;

    /// Returns an ExtensionConfig of generation 2. `discovered` is the status and the generation of its condition.
    fn config(discovered: Option<(&str, i64)>, policy: &str) -> DynamicObject {
        let conditions: Vec<_> = discovered
            .map(|(status, generation)| {
                json!({
                    "type": "Discovered", "status": status, "message": "refused", "observedGeneration": generation,
                })
            })
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig",
            "metadata": {"name": "chandler", "generation": 2},
            "status": {"conditions": conditions, "handlers": [
                {"requestHook": {"hook": "BeforeClusterDelete"}, "failurePolicy": "Ignore"},
                {"requestHook": {"hook": "BeforeClusterUpgrade"}, "failurePolicy": policy},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn hooks_that_do_not_respond_are_a_problem() {
        let (current, outdated) = (Some(("True", 2)), Some(("True", 1)));
        let answers = "is registered and discovered; if no manager answers, upgrades";
        let rows = [
            (current, "Ignore", true, Severity::Ok, format!("{answers} start (failure policy Ignore)")),
            (current, "Fail", true, Severity::Ok, format!("{answers} wait (failure policy Fail)")),
            (current, "Fail", false, Severity::Problem, "Cluster API does not start again".to_owned()),
            (current, "Ignore", false, Severity::Problem, "Cluster API does not start again".to_owned()),
            (Some(("False", 2)), "Ignore", true, Severity::Problem, "chandler: refused".to_owned()),
            (Some(("False", 1)), "Ignore", true, Severity::Warning, "has not discovered".to_owned()),
            (outdated, "Ignore", true, Severity::Warning, "has not discovered".to_owned()),
            (None, "Ignore", true, Severity::Warning, "has not discovered".to_owned()),
        ];
        for (discovered, policy, has_leader, severity, text) in rows {
            let found = evaluate(&config(discovered, policy), has_leader);
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.message.contains(&text), "{found:?}");
            let names_value = found.next_step.is_some_and(|step| step.contains("networkPolicy.hooksFrom"));
            assert_eq!(names_value, severity == Severity::Problem, "{text}");
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
        let names =
            ["chandler", "chandler-fleet", "chandler-fleet-blue", "chandler-fleet2", "chandler-other"];
        let one = names.map(|name| is_relevant(name, Some("fleet")));
        assert_eq!(one, [true, true, true, false, false]);
    }
}
