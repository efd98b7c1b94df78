//! The custom resource definitions as YAML.

use anyhow::Result;
use serde_json::{Value, json};

/// All definitions, one document each.
pub fn yaml() -> Result<String> {
    chandler_api::crds().iter().map(|crd| document(serde_json::to_value(crd)?)).collect()
}

/// `kubectl apply` takes nothing away that a document does not name. A definition that was there before may have a
/// conversion webhook, which cannot stay beside the strategy None.
fn document(mut definition: Value) -> Result<String> {
    definition["spec"]["conversion"]["webhook"] = json!(null);
    Ok(format!("---\n{}", serde_saphyr::to_string(&definition)?))
}
