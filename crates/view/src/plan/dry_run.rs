//! Asks the API server of the management cluster how it would store an object: with defaults, after validation and admission.

use std::collections::BTreeMap;

use chandler_api::LAST_APPLIED_ANNOTATION;
use http::Uri;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject, PostParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::FileKind;

/// How often a dry run is tried if others change the object meanwhile.
const ATTEMPTS: usize = 3;

/// Why an object cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it cannot be read: {0}")]
    Read(kube::Error),
    #[error("it is being deleted")]
    Deleting,
    #[error("the API server does not accept it: {0}")]
    Refused(kube::Error),
    #[error(
        "a dry run of this change is forbidden: plans need the permissions to create and update the objects of the files: {0}"
    )]
    Forbidden(kube::Error),
    #[error("the API server stores it in a form that this version of chandler does not know: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("it cannot be sent: {0}")]
    Request(String),
}

/// Sends dry runs. They change nothing.
pub struct DryRun<'a> {
    client: &'a Client,
}

impl<'a> DryRun<'a> {
    pub fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Returns an object as it would be stored if its file was applied. Its spec is that of the file.
    pub async fn stored<K: DeserializeOwned>(
        &self,
        kind: FileKind,
        object: &DynamicObject,
    ) -> Result<K, Error> {
        let (resource, namespace) = (kind.resource(object), object.namespace().unwrap_or_default());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let mut attempt = 1;
        let stored = loop {
            let existing = api.get_opt(&object.name_any()).await.map_err(Error::Read)?;
            match self.send(&resource, &namespace, object, existing).await {
                // The manager writes the status often, and an update of a custom resource has to name the version that it changes.
                Err(Error::Refused(kube::Error::Api(status))) if status.code == 409 && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                sent => break sent?,
            }
        };
        Ok(serde_json::from_value(serde_json::to_value(stored)?)?)
    }

    async fn send(
        &self,
        resource: &ApiResource,
        namespace: &str,
        object: &DynamicObject,
        existing: Option<DynamicObject>,
    ) -> Result<DynamicObject, Error> {
        let path = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let params = PostParams { dry_run: true, field_manager: Some("chandler-plan".to_owned()) };
        let request = match existing {
            Some(existing) if existing.metadata.deletion_timestamp.is_some() => return Err(Error::Deleting),
            Some(existing) => {
                let applied = applied(existing, object);
                path.replace(&object.name_any(), &params, serde_json::to_vec(&applied)?)
            }
            None => path.create(&params, serde_json::to_vec(object)?),
        };
        let mut request = request.map_err(|error| Error::Request(error.to_string()))?;
        *request.uri_mut() = strict(request.uri())?;
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(ref status) if status.code == 403 => Error::Forbidden(error),
            error => Error::Refused(error),
        })
    }
}

/// Returns the address of a dry run with strict validation, so that a field with a typing error is refused.
fn strict(uri: &Uri) -> Result<Uri, Error> {
    format!("{uri}&fieldValidation=Strict").parse().map_err(|error| Error::Request(format!("{error}")))
}

/// Returns the existing object after a file is applied: with the spec of the file, its labels and its annotations. Labels and
/// annotations that were applied before and are no longer in the file are removed.
fn applied(mut existing: DynamicObject, file: &DynamicObject) -> DynamicObject {
    let last =
        existing.annotations().get(LAST_APPLIED_ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
    let last: Value = last.unwrap_or_default();
    let merge = |stored: &mut BTreeMap<String, String>, new: &BTreeMap<String, String>, field: &str| {
        let before = last.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
        stored.retain(|key, _| !before.is_some_and(|before| before.contains_key(key)));
        stored.extend(new.clone());
    };
    merge(existing.labels_mut(), file.labels(), "labels");
    merge(existing.annotations_mut(), file.annotations(), "annotations");
    existing.metadata.managed_fields = None;
    existing.types.clone_from(&file.types);
    if let (Some(stored), Some(new)) = (existing.data.as_object_mut(), file.data.as_object()) {
        // The status is not part of a file.
        stored.retain(|field, _| field == "status");
        stored.extend(
            new.iter()
                .filter(|(field, _)| *field != "status")
                .map(|(field, value)| (field.clone(), value.clone())),
        );
    }
    existing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(metadata: &Value, spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn a_file_replaces_the_spec_and_keeps_what_others_have_annotated() {
        let last = json!({"metadata": {"annotations": {"gone": "1", "kept": "1"}, "labels": {"gone": "1"}}});
        let mut existing = object(
            &json!({
                "name": "hello", "resourceVersion": "7", "uid": "u", "labels": {"gone": "1", "other": "1"},
                "annotations": {LAST_APPLIED_ANNOTATION: last.to_string(), "gone": "1", "kept": "1", "chandler.dev/suspend": "true"},
            }),
            &json!({"chartName": "hello", "version": "1.0.0"}),
        );
        existing.data["status"] = json!({"readyClusters": "1/1"});
        let file = object(
            &json!({"name": "hello", "annotations": {"kept": "2"}, "labels": {"new": "1"}}),
            &json!({"chartName": "hello"}),
        );
        let applied = applied(existing, &file);
        assert_eq!(applied.data["spec"], json!({"chartName": "hello"}));
        assert_eq!(applied.data["status"], json!({"readyClusters": "1/1"}));
        assert_eq!(applied.metadata.resource_version.as_deref(), Some("7"));
        let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(applied.labels()), ["new", "other"]);
        assert_eq!(keys(applied.annotations()), ["chandler.dev/suspend", "kept", LAST_APPLIED_ANNOTATION]);
        assert_eq!(applied.annotations()["kept"], "2");
    }

    #[test]
    fn fields_are_validated_strictly() {
        let uri = strict(&"/apis/x?dryRun=All".parse().unwrap()).unwrap();
        assert_eq!(uri.query(), Some("dryRun=All&fieldValidation=Strict"));
    }
}
