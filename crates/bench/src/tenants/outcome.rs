//! What becomes of attacks: the conditions of their placements. It shows that they really run.

use std::collections::BTreeMap;

use anyhow::Result;
use chandler_api::{
    addons::HelmChartProxy,
    extensions::{Extension, ExtensionCatalog, ExtensionInstance},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
};
use serde::Serialize;

use super::attack::of_attacks;

/// What has become of attacks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The number of hostile placements.
    pub placements: usize,
    /// How many of them are not Ready, by the reason of their condition `Ready`.
    pub not_ready: BTreeMap<String, usize>,
    /// The names of those that are Ready, or have no condition yet.
    pub others: Vec<String>,
    /// Connections to servers to which the manager must not connect.
    pub internal_connections: usize,
}

impl Outcome {
    /// Adds a placement with the status and the reason of its condition `Ready`.
    fn add(&mut self, name: String, ready: Option<(&str, &str)>) {
        self.placements += 1;
        match ready {
            Some((status, reason)) if status != "True" => {
                *self.not_ready.entry(reason.to_owned()).or_default() += 1;
            }
            _ => self.others.push(name),
        }
    }
}

/// Returns the kinds of placements.
pub fn placement_kinds() -> Vec<ApiResource> {
    vec![ApiResource::erase::<HelmChartProxy>(&()), ApiResource::erase::<ExtensionInstance>(&())]
}

/// Returns the kinds that placements of attacks refer to.
pub fn other_kinds() -> Vec<ApiResource> {
    vec![ApiResource::erase::<Extension>(&()), ApiResource::erase::<ExtensionCatalog>(&())]
}

/// Reads the placements of attacks.
pub async fn read(client: &Client, namespace: &str, internal_connections: usize) -> Result<Outcome> {
    let mut outcome = Outcome { internal_connections, ..Outcome::default() };
    for resource in placement_kinds() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        for object in api.list(&of_attacks()).await?.items {
            outcome.add(object.name_any(), ready(&object));
        }
    }
    Ok(outcome)
}

/// Returns status and reason of the condition `Ready`.
fn ready(object: &DynamicObject) -> Option<(&str, &str)> {
    let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready")?;
    Some((ready["status"].as_str()?, ready["reason"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placement_is_not_ready_if_its_condition_has_another_status() {
        let object = |status: &str| {
            let conditions = json!([{"type": "Ready", "status": status, "reason": "Because"}]);
            let text = json!({"metadata": {"name": status}, "status": {"conditions": conditions}});
            serde_json::from_value::<DynamicObject>(text).unwrap()
        };
        let mut outcome = Outcome::default();
        for status in ["True", "False", "Unknown", "False"] {
            outcome.add(status.to_owned(), ready(&object(status)));
        }
        outcome.add("new".to_owned(), None);
        assert_eq!(outcome.placements, 5);
        assert_eq!(outcome.not_ready, BTreeMap::from([("Because".to_owned(), 3)]));
        assert_eq!(outcome.others, ["True", "new"]);
    }
}
