//! The ExtensionConfig that registers the hooks with Cluster API.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_api::FIELD_MANAGER;
use k8s_openapi::{
    Resource as _,
    api::rbac::v1::ClusterRole,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference},
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{Disabled, Endpoint, Error};

/// Name of the ExtensionConfig of the only Chandler on a management cluster, and prefix of the names of several.
pub const EXTENSION_CONFIG: &str = "chandler";

const GROUP: &str = "runtime.cluster.x-k8s.io";
const VERSION: &str = "v1beta2";
const KIND: &str = "ExtensionConfig";

/// The content of the ExtensionConfig.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Name of the ExtensionConfig.
    pub name: String,
    pub endpoint: Endpoint,
    /// Selects the namespaces whose Clusters the hooks are called for. An empty selector selects all.
    pub namespaces: LabelSelector,
    /// Candidates for the owner of the ExtensionConfig. The first one that exists is used, so that the ExtensionConfig is
    /// garbage collected when Chandler is uninstalled.
    pub owners: Vec<Owner>,
}

/// A cluster-scoped object that is deleted when Chandler is uninstalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    ClusterRole(String),
    CustomResourceDefinition(String),
}

impl Registration {
    /// Applies the ExtensionConfig, and returns it.
    pub(crate) async fn apply(&self, client: &Client, ca_bundle: &str) -> Result<DynamicObject, Error> {
        let owner = self.owner(client).await?;
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let object = self.object(ca_bundle, owner.as_slice());
        let applied = extension_configs(client).patch(&self.name, &parameters, &Patch::Apply(object)).await;
        applied.map_err(|source| match disabled(&source) {
            Some(why) => Error::Disabled(why),
            None => Error::Register { name: self.name.clone(), source },
        })
    }

    /// Returns the first owner that exists. It is read on each apply: if an owner is recreated, its UID changes, and an outdated
    /// UID would make the garbage collector delete the ExtensionConfig.
    async fn owner(&self, client: &Client) -> Result<Option<OwnerReference>, Error> {
        for owner in &self.owners {
            if let Some(uid) = owner.uid(client).await.map_err(Error::Owner)? {
                return Ok(Some(owner.reference(uid)));
            }
        }
        Ok(None)
    }

    fn object(&self, ca_bundle: &str, owners: &[OwnerReference]) -> Value {
        let mut client_config = self.endpoint.client_config();
        client_config["caBundle"] = BASE64_STANDARD.encode(ca_bundle).into();
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {"name": self.name, "ownerReferences": owners},
            "spec": {"clientConfig": client_config, "namespaceSelector": self.namespaces},
        })
    }
}

impl Owner {
    async fn uid(&self, client: &Client) -> Result<Option<String>, kube::Error> {
        let found = match self {
            Self::ClusterRole(name) => {
                cluster_roles(client).get_metadata_opt(name).await?.map(|o| o.metadata)
            }
            Self::CustomResourceDefinition(name) => {
                crds(client).get_metadata_opt(name).await?.map(|o| o.metadata)
            }
        };
        Ok(found.and_then(|metadata| metadata.uid))
    }

    fn reference(&self, uid: String) -> OwnerReference {
        let (api_version, kind, name) = match self {
            Self::ClusterRole(name) => (ClusterRole::API_VERSION, ClusterRole::KIND, name),
            Self::CustomResourceDefinition(name) => {
                (CustomResourceDefinition::API_VERSION, CustomResourceDefinition::KIND, name)
            }
        };
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        OwnerReference { api_version, kind, name: name.clone(), uid, ..OwnerReference::default() }
    }
}

/// Deletes the ExtensionConfig, so that Cluster API no longer calls the hooks. It has to be deleted when Chandler is
/// uninstalled: Cluster API does not start while an ExtensionConfig refers to a server that does not respond.
pub async fn unregister(client: &Client, name: &str) -> Result<(), Error> {
    let api = extension_configs(client);
    // It is read first, because a manager without hooks must not write at each start.
    let deleted = match api.get_metadata(name).await {
        Ok(_) => api.delete(name, &DeleteParams::default()).await.map(drop),
        Err(error) => Err(error),
    };
    match deleted {
        // Also if the API server does not serve the kind, which it answers with a text instead of a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(Error::Unregister { name: name.to_owned(), source }),
        Ok(()) => Ok(()),
    }
}

/// Returns whether Cluster API supports the hook `BeforeControlPlaneUpgrade`. It does since it supports upgrades over several
/// minor versions, which add a field to ClusterClass. An older version rejects all hooks if one of them is unknown to it.
pub(crate) async fn supports_control_plane_upgrade_hook(client: &Client) -> Result<bool, Error> {
    let class = crds(client).get("clusterclasses.cluster.x-k8s.io").await.map_err(Error::ClusterClass)?;
    Ok(class.spec.versions.iter().any(|version| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec"));
        spec.and_then(|spec| spec.properties.as_ref()?.get("kubernetesVersions")).is_some()
    }))
}

/// Returns why Cluster API calls no hooks, if that is why an ExtensionConfig could not be applied.
///
/// The CRD is installed with and without the feature gate. Without it, the webhook of Cluster API rejects every
/// ExtensionConfig, and only its message names the gate.
fn disabled(error: &kube::Error) -> Option<Disabled> {
    let kube::Error::Api(status) = error else { return None };
    if status.code == 404 {
        return Some(Disabled::NotServed);
    }
    (status.is_forbidden() && status.message.contains("RuntimeSDK feature flag"))
        .then_some(Disabled::FeatureGate)
}

fn crds(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn cluster_roles(client: &Client) -> Api<ClusterRole> {
    Api::all(client.clone())
}

fn extension_configs(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
    Api::all_with(client.clone(), &resource)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_a_disabled_cluster_api_is_not_an_error() {
        let denied = "admission webhook \"validation.extensionconfig.runtime.cluster.x-k8s.io\" denied the request: spec: \
                      Forbidden: can be set only if the RuntimeSDK feature flag is enabled";
        let rows = [
            (404, "NotFound", "the server could not find the requested resource", Some(Disabled::NotServed)),
            (403, "Forbidden", denied, Some(Disabled::FeatureGate)),
            (403, "Forbidden", "extensionconfigs is forbidden: User \"a\" cannot patch resource", None),
            (500, "InternalError", "failed calling webhook", None),
        ];
        for (code, reason, message, expected) in rows {
            let status = Status::failure(message, reason).with_code(code);
            assert_eq!(disabled(&kube::Error::Api(Box::new(status))), expected, "{message}");
        }
    }
}
