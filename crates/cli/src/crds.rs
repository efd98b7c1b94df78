//! Chandler's CustomResourceDefinitions as YAML.

use anyhow::Result;
use serde_json::{Value, json};

/// Returns all CRDs, one document each.
pub fn yaml() -> Result<String> {
    chandler_api::crds().iter().map(|crd| document(serde_json::to_value(crd)?)).collect()
}

/// Sets the conversion webhook to `null`, so that `kubectl apply` removes it from an existing CRD. The API server
/// rejects a webhook with the conversion strategy `None`.
fn document(mut crd: Value) -> Result<String> {
    crd["spec"]["conversion"]["webhook"] = json!(null);
    Ok(format!("---\n{}", serde_saphyr::to_string(&crd)?))
}
