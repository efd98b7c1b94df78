//! Writes objects of Fleet, and removes what is left of CAAPF.

use chandler_api::FIELD_MANAGER;
use chandler_core::fleet::{
    WriteAction, WritePolicy, take_over_fields, without_caapf_finalizer, write_action,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{ManagementError, error::found};

/// A kind of Fleet, and whether its objects may be changed.
pub struct FleetObject {
    pub resource: ApiResource,
    /// The kind in errors.
    pub kind: &'static str,
    pub policy: WritePolicy,
}

impl FleetObject {
    /// Applies an object if the one that exists differs from it.
    pub async fn apply(
        &self,
        client: &Client,
        wanted: Value,
        existing: Option<&Value>,
    ) -> Result<(), ManagementError> {
        let text = |field: &str| wanted["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &self.resource);
        let failed = |source| ManagementError::Write { kind: self.kind, name: name.clone(), source };
        let object = match write_action(wanted, existing, self.policy) {
            WriteAction::Nothing => return Ok(()),
            WriteAction::Apply(object) => object,
            WriteAction::TakeOver(object) => {
                self.take_over(&api, &name).await?;
                object
            }
        };
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &parameters, &Patch::Apply(object)).await.map_err(failed)?;
        tracing::info!(kind = self.kind, namespace, name, "applied an object of Fleet");
        Ok(())
    }

    /// Assigns the fields that CAAPF applied to Chandler, and removes its finalizer. Watches do not show managed fields, so
    /// the object is read.
    async fn take_over(&self, api: &Api<DynamicObject>, name: &str) -> Result<(), ManagementError> {
        let failed = |source| ManagementError::Write { kind: self.kind, name: name.to_owned(), source };
        let Some(object) = api.get_opt(name).await.map_err(failed)? else { return Ok(()) };
        let fields = take_over_fields(object.managed_fields());
        let finalizers = without_caapf_finalizer(object.finalizers());
        if fields.is_none() && finalizers.is_none() {
            return Ok(());
        }
        // With the resource version, the write fails if another client has changed the object.
        let mut patch = json!({"metadata": {"resourceVersion": object.resource_version()}});
        if let Some(fields) = fields {
            patch["metadata"]["managedFields"] = json!(fields);
        }
        if let Some(finalizers) = finalizers {
            patch["metadata"]["finalizers"] = json!(finalizers);
        }
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
        Ok(())
    }
}

/// Removes the finalizer of CAAPF from an object of Cluster API, which could not be deleted otherwise.
pub async fn remove_caapf_finalizer(
    client: &Client,
    resource: &ApiResource,
    kind: &'static str,
    object: &DynamicObject,
) -> Result<(), ManagementError> {
    let Some(finalizers) = without_caapf_finalizer(object.finalizers()) else { return Ok(()) };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, resource);
    // With the resource version, the write fails if another client has changed the list.
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    match found(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await) {
        Ok(Some(_)) => {
            tracing::info!(kind, namespace, name, "removed the finalizer of the add-on provider for Fleet");
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(source) => Err(ManagementError::Write { kind, name, source }),
    }
}
