//! Whether someone answers the hooks that are registered: upgrades of clusters wait for an answer.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::Finding;

const CHECK: &str = "hooks";
const NEXT: &str = "start the manager with the --hooks-endpoint that it had, and see that Cluster API can reach it; if \
                    Chandler has gone for good: `chandler hooks unregister`";

/// `acts`: whether a manager holds the leader Lease of this namespace; None: of any.
pub async fn check(client: &Client, namespace: Option<&str>, acts: bool) -> Result<Vec<Finding>> {
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let configs = match configs.list(&ListParams::default()).await {
        // No Cluster API, or one without runtime extensions.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing ExtensionConfigs")?,
    };
    Ok(configs
        .iter()
        .filter(|config| concerns(&config.name_any(), namespace))
        .filter_map(|config| judge(config, acts))
        .collect())
}

/// Managers that look after one namespace register under its name.
fn concerns(name: &str, namespace: Option<&str>) -> bool {
    match (name.strip_prefix(chandler_hooks::EXTENSION_CONFIG), namespace) {
        (None, _) => false,
        (Some(""), _) => true,
        (Some(rest), None) => rest.starts_with('-'),
        (Some(rest), Some(namespace)) => {
            rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(namespace))
        }
    }
}

fn judge(config: &DynamicObject, acts: bool) -> Option<Finding> {
    let name = config.name_any();
    let conditions = config.data.pointer("/status/conditions").and_then(Value::as_array);
    let refused = conditions
        .into_iter()
        .flatten()
        .find(|said| said["type"] == "Discovered" && said["status"] == "False");
    if let Some(said) = refused {
        let why = said["message"].as_str().unwrap_or_default();
        let message = format!("Cluster API does not reach the hooks of ExtensionConfig {name}: {why}");
        return Some(Finding::problem(CHECK, message, NEXT));
    }
    (!acts).then(|| {
        let message =
            format!("ExtensionConfig {name} is registered and no manager acts: upgrades of clusters wait");
        Finding::problem(CHECK, message, NEXT)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_that_nobody_answers_are_a_problem() {
        let config = |discovered: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": "chandler"},
                "status": {"conditions": [{"type": "Discovered", "status": discovered, "message": "refused"}]},
            }))
            .unwrap()
        };
        assert_eq!(judge(&config("True"), true), None);
        assert!(judge(&config("True"), false).is_some());
        assert!(
            judge(&config("False"), true).is_some_and(|found| found.message.ends_with("chandler: refused"))
        );
        let all = ["chandler", "chandler-fleet", "chandlery"].map(|name| concerns(name, None));
        assert_eq!(all, [true, true, false]);
        let one = ["chandler", "chandler-fleet", "chandler-other"].map(|name| concerns(name, Some("fleet")));
        assert_eq!(one, [true, true, false]);
    }
}
