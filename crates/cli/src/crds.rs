//! The custom resource definitions as YAML.

use anyhow::Result;

/// All definitions, one document each.
pub fn yaml() -> Result<String> {
    chandler_api::crds().iter().map(|crd| Ok(format!("---\n{}", serde_saphyr::to_string(crd)?))).collect()
}
