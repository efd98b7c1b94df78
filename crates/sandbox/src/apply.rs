//! Server-side apply of objects whose kind is only known at run time.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

/// Owns every field the sandbox writes by server-side apply.
pub const FIELD_MANAGER: &str = "chandler-sandbox";

/// Why something was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot apply {what}: {source}")]
    Refused { what: String, source: Box<kube::Error> },
    #[error("the manifests are not valid YAML: {0}")]
    Read(serde_saphyr::Error),
}

/// Server-side apply of every document of a YAML text.
pub async fn apply_all(client: &kube::Client, yaml: &str) -> Result<(), Error> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(Error::Read)?;
    for document in &documents {
        apply(client, document).await?;
    }
    Ok(())
}

/// Server-side apply of any object that has a name.
pub async fn apply(client: &kube::Client, object: &Value) -> Result<(), Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").rsplit_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let name = text("/metadata/name");
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &parameters, &Patch::Apply(object)).await.map_err(|source| Error::Refused {
        what: format!("{} {name}", text("/kind")),
        source: Box::new(source),
    })?;
    Ok(())
}
