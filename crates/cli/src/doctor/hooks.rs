//! Checks whether the registered runtime hooks respond: Cluster API delays upgrades of clusters until they do.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::Finding;

const CHECK: &str = "hooks";
const NEXT_STEP: &str = "start the manager with the same --hooks-endpoint and check that Cluster API can reach it; if \
                         Chandler is uninstalled, run `chandler hooks unregister`";

/// Checks the ExtensionConfigs of managers for this namespace. `None` means all namespaces. `has_leader` is whether
/// such a manager holds its leader election Lease.
pub async fn check(client: &Client, namespace: Option<&str>, has_leader: bool) -> Result<Vec<Finding>> {
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let configs = match configs.list(&ListParams::default()).await {
        // Cluster API is not installed, or has no runtime extensions.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing ExtensionConfigs")?,
    };
    Ok(configs
        .iter()
        .filter(|config| is_relevant(&config.name_any(), namespace))
        .filter_map(|config| evaluate(config, has_leader))
        .collect())
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

fn evaluate(config: &DynamicObject, has_leader: bool) -> Option<Finding> {
    let name = config.name_any();
    let conditions = config.data.pointer("/status/conditions").and_then(Value::as_array);
    let failed = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Discovered" && condition["status"] == "False");
    if let Some(condition) = failed {
        let reason = condition["message"].as_str().unwrap_or_default();
        let message = format!("Cluster API cannot reach the hooks of ExtensionConfig {name}: {reason}");
        return Some(Finding::problem(CHECK, message, NEXT_STEP));
    }
    (!has_leader).then(|| {
        let message = format!(
            "ExtensionConfig {name} is registered but no manager is running: upgrades of clusters are delayed"
        );
        Finding::problem(CHECK, message, NEXT_STEP)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_that_do_not_respond_are_a_problem() {
        let config = |discovered: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": "chandler"},
                "status": {"conditions": [{"type": "Discovered", "status": discovered, "message": "refused"}]},
            }))
            .unwrap()
        };
        assert_eq!(evaluate(&config("True"), true), None);
        assert!(evaluate(&config("True"), false).is_some());
        assert!(
            evaluate(&config("False"), true)
                .is_some_and(|found| found.message.ends_with("chandler: refused"))
        );
        let all = ["chandler", "chandler-fleet", "chandlery"].map(|name| is_relevant(name, None));
        assert_eq!(all, [true, true, false]);
        let one =
            ["chandler", "chandler-fleet", "chandler-other"].map(|name| is_relevant(name, Some("fleet")));
        assert_eq!(one, [true, true, false]);
    }
}
