//! Server-side apply of objects whose kind is only known at run time.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::dynamic_api;

/// The field manager of everything that the sandbox applies.
pub const FIELD_MANAGER: &str = "chandler-sandbox";

/// An error while applying objects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot apply {object}: {source}")]
    Apply { object: String, source: Box<kube::Error> },
    #[error("the manifests are not valid YAML: {0}")]
    Parse(serde_saphyr::Error),
}

/// Applies every document of a YAML text.
pub async fn apply_all(client: &kube::Client, yaml: &str) -> Result<(), Error> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(Error::Parse)?;
    for document in &documents {
        apply(client, document).await?;
    }
    Ok(())
}

/// Applies an object.
pub async fn apply(client: &kube::Client, object: &Value) -> Result<(), Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let resource = dynamic_api::resource(text("/apiVersion"), text("/kind"));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let name = text("/metadata/name");
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &parameters, &Patch::Apply(object)).await.map_err(|source| Error::Apply {
        object: format!("{} {name}", text("/kind")),
        source: Box::new(source),
    })?;
    Ok(())
}
