//! Writes Secrets with values, which release objects own.

use chandler_api::{FIELD_MANAGER, extensions::ValuesSecret};
use chandler_core::{
    parameters::Rendered,
    placement::PlacementKind,
    release::{
        ReleaseKind, StoredValues, VALUES_KEY, VALUES_SECRET_TYPE, may_write_values, must_write_values,
        values_secret_name_of,
    },
};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::placement::{ComposeError, WriteValues};

/// Writes Secrets with values.
#[derive(Clone)]
pub struct ValuesSecrets(Client);

/// Values, and the release object that they are for.
pub struct ToStore<'a, R> {
    pub values: Rendered,
    /// Whether one of their sources may be secret.
    pub is_secret: bool,
    /// The name of the release object.
    pub release: &'a str,
    pub existing: Option<&'a R>,
    /// Whether the existing release object has the same package.
    pub has_same_package: bool,
    pub write: WriteValues,
}

impl ValuesSecrets {
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// Stores values in a Secret if one of their sources may be secret. Also returns the values that
    /// the Secret does not have, because of [`WriteValues`].
    pub async fn store<P: PlacementKind>(
        &self,
        placement: &P,
        to_store: ToStore<'_, P::Release>,
    ) -> Result<(StoredValues, Option<Rendered>), ComposeError> {
        let ToStore { values, is_secret, release, existing, has_same_package, write } = to_store;
        if !is_secret {
            return Ok((StoredValues::Text(values.text), None));
        }
        let uid = placement.meta().uid.as_deref().unwrap_or_default();
        let name = values_secret_name_of(existing, release, uid);
        let secret = ValuesSecret { name, digest: values.digest.to_string() };
        let is_other = existing.is_some_and(|existing| existing.values_secret().as_ref() != Some(&secret));
        let may_write = match write {
            WriteValues::Always => true,
            WriteValues::UnlessChanged => !is_other,
            WriteValues::Never => false,
        };
        if may_write && must_write_values(existing, &secret, has_same_package) {
            let namespace = placement.meta().namespace.clone().unwrap_or_default();
            let owners = Owners { release, of_placement: placement.controller_owner_ref(&()) };
            // A release object that does not exist yet becomes the owner when it is created.
            let owner = match existing {
                Some(existing) => existing.controller_owner_ref(&()),
                None => owners.of_placement.clone(),
            };
            self.write::<P::Release>(&namespace, &secret.name, &owners, owner, &values).await?;
        }
        Ok((StoredValues::Secret(secret), Some(values).filter(|_| !may_write)))
    }

    /// Writes values, type and owner in one request. A Secret that belongs to somebody else is not changed.
    async fn write<R: ReleaseKind>(
        &self,
        namespace: &str,
        name: &str,
        owners: &Owners<'_>,
        owner: Option<OwnerReference>,
        values: &Rendered,
    ) -> Result<(), ComposeError> {
        let content = json!({
            "apiVersion": "v1", "kind": "Secret", "type": VALUES_SECRET_TYPE,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owner.as_slice()},
            "stringData": {VALUES_KEY: values.text},
        });
        let failed = |source| ComposeError::WriteValues { name: name.to_owned(), source };
        let existing = self.api(namespace).get_opt(name).await.map_err(failed)?;
        let written = match existing {
            Some(existing) if !owners.include_those_of::<R>(&existing) => {
                return Err(owners.foreign::<R>(namespace, name));
            }
            Some(existing) => self.merge(&existing, content).await,
            None => self.create(namespace, content).await,
        };
        written.map_err(failed)
    }

    /// Creates a Secret. Fails if another client has created it meanwhile; the next reconcile checks whose it is.
    async fn create(&self, namespace: &str, secret: Value) -> Result<(), kube::Error> {
        let secret: Secret = serde_json::from_value(secret).map_err(kube::Error::SerdeError)?;
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.api(namespace).create(&parameters, &secret).await.map(drop)
    }

    /// Patches a Secret unless it has changed since it was read. The patch does not use server-side apply, which would add the owner
    /// to owners that another field manager has set, such as `clusterctl move`. The API server refuses a second controller.
    async fn merge(&self, existing: &Secret, mut patch: Value) -> Result<(), kube::Error> {
        patch["metadata"]["uid"] = json!(existing.uid());
        patch["metadata"]["resourceVersion"] = json!(existing.resource_version());
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&existing.namespace().unwrap_or_default());
        api.patch(&existing.name_any(), &parameters, &Patch::Merge(patch)).await.map(drop)
    }

    /// Makes a release object that was just created the owner of the Secret with its values, so that it is deleted with it.
    pub async fn set_owner<R: ReleaseKind>(&self, release: &R) {
        let is_new = release.meta().generation == Some(1);
        let (Some(secret), Some(owner), true) =
            (release.values_secret(), release.controller_owner_ref(&()), is_new)
        else {
            return;
        };
        let namespace = release.namespace().unwrap_or_default();
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        if let Err(error) = self.merge_own(release, &secret.name, patch).await {
            // The placement owns it until it is written again.
            tracing::warn!(secret = secret.name, namespace, %error, "the owner of a Secret with values is not set");
        }
    }

    /// Removes the values from a Secret that no release object refers to any more. It is deleted with its owner.
    pub async fn clear<R: ReleaseKind>(&self, release: &R, name: &str) {
        let namespace = release.namespace().unwrap_or_default();
        if let Err(error) = self.merge_own(release, name, json!({"stringData": {VALUES_KEY: ""}})).await {
            tracing::warn!(secret = name, namespace, %error, "a Secret still has values that are not used any more");
        }
    }

    /// Patches a Secret if it exists and belongs to a release object or its placement.
    async fn merge_own<R: ReleaseKind>(
        &self,
        release: &R,
        name: &str,
        patch: Value,
    ) -> Result<(), kube::Error> {
        let of_placement =
            release.owner_references().iter().find(|owner| owner.controller == Some(true)).cloned();
        let release_name = release.name_any();
        let owners = Owners { release: &release_name, of_placement };
        let namespace = release.namespace().unwrap_or_default();
        let existing = self.api(&namespace).get_opt(name).await?;
        match existing.filter(|existing| owners.include_those_of::<R>(existing)) {
            Some(existing) => self.merge(&existing, patch).await,
            None => Ok(()),
        }
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.0.clone(), namespace)
    }
}

/// The objects that may own a Secret with values.
struct Owners<'a> {
    /// The name of the release object.
    release: &'a str,
    of_placement: Option<OwnerReference>,
}

impl Owners<'_> {
    fn include_those_of<R: ReleaseKind>(&self, secret: &Secret) -> bool {
        may_write_values::<R>(secret, self.release, self.of_placement.as_ref())
    }

    fn foreign<R: ReleaseKind>(&self, namespace: &str, name: &str) -> ComposeError {
        ComposeError::ForeignSecret {
            secret: format!("{namespace}/{name}"),
            release: format!("{} {}", R::kind(&()), self.release),
        }
    }
}
