//! What Cluster API reports about an ExtensionConfig.

use kube::api::DynamicObject;
use serde_json::Value;

/// Whether Cluster API has discovered the hooks of an ExtensionConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// It has discovered them as they are registered now.
    Discovered,
    /// It cannot discover them, for this reason.
    Failed(String),
    /// It has not reported yet on what is registered now.
    Pending,
}

/// Returns what Cluster API reports about the current generation of an ExtensionConfig. A report on an earlier generation says
/// nothing: each leader registers another address or certificate authority.
pub fn discovery(config: &DynamicObject) -> Discovery {
    let conditions = config.data.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == "Discovered");
    let current =
        condition.filter(|condition| condition["observedGeneration"].as_i64() == config.metadata.generation);
    match current.and_then(|condition| Some((condition["status"].as_str()?, condition))) {
        Some(("True", _)) => Discovery::Discovered,
        Some(("False", condition)) => {
            Discovery::Failed(condition["message"].as_str().unwrap_or_default().to_owned())
        }
        _ => Discovery::Pending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_reports_on_the_current_generation_count() {
        let rows = [
            (json!([]), Discovery::Pending),
            (json!([{"type": "Paused", "status": "True", "observedGeneration": 2}]), Discovery::Pending),
            (
                json!([{"type": "Discovered", "status": "True", "observedGeneration": 2}]),
                Discovery::Discovered,
            ),
            (json!([{"type": "Discovered", "status": "True", "observedGeneration": 1}]), Discovery::Pending),
            (json!([{"type": "Discovered", "status": "True"}]), Discovery::Pending),
            (
                json!([{"type": "Discovered", "status": "Unknown", "observedGeneration": 2}]),
                Discovery::Pending,
            ),
            (
                json!([{"type": "Discovered", "status": "False", "observedGeneration": 2, "message": "refused"}]),
                Discovery::Failed("refused".to_owned()),
            ),
            (
                json!([{"type": "Discovered", "status": "False", "observedGeneration": 1, "message": "refused"}]),
                Discovery::Pending,
            ),
        ];
        for (conditions, expected) in rows {
            let config: DynamicObject = serde_json::from_value(json!({
                "metadata": {"name": "chandler", "generation": 2}, "status": {"conditions": conditions},
            }))
            .unwrap();
            assert_eq!(discovery(&config), expected, "{conditions}");
        }
        let new: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "chandler"}})).unwrap();
        assert_eq!(discovery(&new), Discovery::Pending, "no status");
    }
}
