//! Writes Secrets with values, which release objects own.

use std::collections::BTreeMap;

use chandler_api::{FIELD_MANAGER, extensions::ValuesSecret};
use chandler_core::{
    parameters::Rendered,
    placement::PlacementKind,
    release::{ReleaseKind, StoredValues, VALUES_KEY, belongs_to, must_write_values, values_secret_name},
};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
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
        let name = values_secret_name::<P::Release>(release);
        let secret = ValuesSecret { name, digest: values.digest.to_string() };
        let is_other = existing.is_some_and(|existing| existing.values_secret().as_ref() != Some(&secret));
        let may_write = match write {
            WriteValues::Always => true,
            WriteValues::UnlessChanged => !is_other,
            WriteValues::Never => false,
        };
        if may_write && must_write_values(existing, &secret, has_same_package) {
            // A release object that does not exist yet becomes the owner when it is created.
            let owner = match existing {
                Some(existing) => existing.controller_owner_ref(&()),
                None => placement.controller_owner_ref(&()),
            };
            let namespace = placement.meta().namespace.clone().unwrap_or_default();
            let written = self.write(&namespace, &secret.name, owner, &values).await;
            written.map_err(|source| ComposeError::WriteValues { name: secret.name.clone(), source })?;
        }
        Ok((StoredValues::Secret(secret), Some(values).filter(|_| !may_write)))
    }

    /// Writes values, and replaces the owners of the Secret if they differ.
    ///
    /// A Secret is created together with its owner: the `ValidatingAdmissionPolicy` of `deploy/rbac.yaml` refuses one without. The
    /// owners of an existing one are replaced as a whole: those that another field manager has set, such as `clusterctl move`,
    /// must not stay, because the API server refuses a second controller.
    async fn write(
        &self,
        namespace: &str,
        name: &str,
        owner: Option<OwnerReference>,
        values: &Rendered,
    ) -> Result<(), kube::Error> {
        let text = BTreeMap::from([(VALUES_KEY.to_owned(), values.text.clone())]);
        let written = match self.merge(namespace, name, json!({"stringData": text})).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return self.create(namespace, name, owner, text).await;
            }
            written => written?,
        };
        match owner {
            Some(owner) if !belongs_to(written.owner_references(), &owner) => {
                self.replace_owners(namespace, name, &owner).await
            }
            _ => Ok(()),
        }
    }

    async fn create(
        &self,
        namespace: &str,
        name: &str,
        owner: Option<OwnerReference>,
        text: BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            string_data: Some(text),
            ..Secret::default()
        };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.api(namespace).create(&parameters, &secret).await.map(drop)
    }

    async fn replace_owners(
        &self,
        namespace: &str,
        name: &str,
        owner: &OwnerReference,
    ) -> Result<(), kube::Error> {
        self.merge(namespace, name, json!({"metadata": {"ownerReferences": [owner]}})).await.map(drop)
    }

    async fn merge(&self, namespace: &str, name: &str, patch: Value) -> Result<Secret, kube::Error> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.api(namespace).patch(name, &parameters, &Patch::Merge(patch)).await
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
        if let Err(error) = self.replace_owners(&namespace, &secret.name, &owner).await {
            // The placement owns it until it is written again.
            tracing::warn!(secret = secret.name, namespace, %error, "the owner of a Secret with values is not set");
        }
    }

    /// Removes the values from a Secret that no release object refers to any more. It is deleted with its owner.
    pub async fn clear(&self, namespace: &str, name: &str) {
        match self.merge(namespace, name, json!({"stringData": {VALUES_KEY: ""}})).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                tracing::warn!(secret = name, namespace, %error, "a Secret still has values that are not used any more");
            }
        }
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.0.clone(), namespace)
    }
}
