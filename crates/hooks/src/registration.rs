//! The ExtensionConfig by which Cluster API knows our hooks.

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

use crate::{Endpoint, Error};

/// Name of the ExtensionConfig, unless several Chandlers share a management cluster.
pub const EXTENSION_CONFIG: &str = "chandler";

const GROUP: &str = "runtime.cluster.x-k8s.io";
const VERSION: &str = "v1beta2";
const KIND: &str = "ExtensionConfig";

/// How Cluster API gets to know our hooks.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Name of the ExtensionConfig.
    pub name: String,
    pub endpoint: Endpoint,
    /// Clusters of which namespaces it is about. Empty: all.
    pub namespaces: LabelSelector,
    /// What it goes with when Chandler goes: the first of these that is there.
    pub owners: Vec<Owner>,
}

/// An object without a namespace that is removed with Chandler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    ClusterRole(String),
    Definition(String),
}

impl Registration {
    /// Creates or updates the ExtensionConfig. What is already so costs one request and changes nothing.
    pub(crate) async fn apply(&self, client: &Client, bundle: &str) -> Result<(), Error> {
        let owner = self.owner(client).await?;
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let object = self.object(bundle, owner.as_slice());
        match extension_configs(client).patch(&self.name, &parameters, &Patch::Apply(object)).await {
            Ok(_) => Ok(()),
            Err(source) => Err(Error::Register { name: self.name.clone(), source }),
        }
    }

    /// Read each time: whoever puts an object in place of another must not have the ExtensionConfig collected.
    async fn owner(&self, client: &Client) -> Result<Option<OwnerReference>, Error> {
        for owner in &self.owners {
            if let Some(uid) = owner.uid(client).await.map_err(Error::Owner)? {
                return Ok(Some(owner.reference(uid)));
            }
        }
        Ok(None)
    }

    fn object(&self, bundle: &str, owners: &[OwnerReference]) -> Value {
        let mut client_config = self.endpoint.client_config();
        client_config["caBundle"] = BASE64_STANDARD.encode(bundle).into();
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
            Self::Definition(name) => definitions(client).get_metadata_opt(name).await?.map(|o| o.metadata),
        };
        Ok(found.and_then(|metadata| metadata.uid))
    }

    fn reference(&self, uid: String) -> OwnerReference {
        let (api_version, kind, name) = match self {
            Self::ClusterRole(name) => (ClusterRole::API_VERSION, ClusterRole::KIND, name),
            Self::Definition(name) => {
                (CustomResourceDefinition::API_VERSION, CustomResourceDefinition::KIND, name)
            }
        };
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        OwnerReference { api_version, kind, name: name.clone(), uid, ..OwnerReference::default() }
    }
}

/// Removes the ExtensionConfig, so that Cluster API asks no more. It has to go when Chandler does: Cluster API does not
/// start while one is there that nobody answers.
pub async fn unregister(client: &Client, name: &str) -> Result<(), Error> {
    match extension_configs(client).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(Error::Unregister { name: name.to_owned(), source }),
        Ok(_) => Ok(()),
    }
}

/// Whether Cluster API asks before each step of a control plane. It does since it knows upgrades over several minor
/// versions, which show in its ClusterClass; an older one refuses all hooks if it is offered one that it does not know.
pub(crate) async fn knows_control_plane_steps(client: &Client) -> Result<bool, Error> {
    let class = definitions(client).get("clusterclasses.cluster.x-k8s.io").await.map_err(Error::Kinds)?;
    Ok(class.spec.versions.iter().any(|version| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec"));
        spec.and_then(|spec| spec.properties.as_ref()?.get("kubernetesVersions")).is_some()
    }))
}

fn definitions(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn cluster_roles(client: &Client) -> Api<ClusterRole> {
    Api::all(client.clone())
}

fn extension_configs(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
    Api::all_with(client.clone(), &resource)
}
