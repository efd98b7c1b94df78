//! The steps of `clusterctl move`: copies objects to another management cluster and deletes them from the first one.
//!
//! Tests perform them one by one, because the time between two steps matters to the managers that watch the objects.

use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::dynamic_api::{ignore_not_found, namespaced};

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const CAPI: &str = "cluster.x-k8s.io/v1beta2";
const CONTROL_PLANES: &str = "controlplane.cluster.x-k8s.io/v1alpha1";
const EXTENSIONS: &str = "chandler.dev/v1alpha1";
const DELETION_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An error while moving objects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {verb} {object}: {source}")]
    Request { verb: &'static str, object: String, source: Box<kube::Error> },
    #[error("cannot serialize a patch: {0}")]
    Serialize(#[from] serde_json::Error),
    #[error("{object} was not deleted within {} s", DELETION_TIMEOUT.as_secs())]
    NotDeleted { object: String },
}

impl Error {
    fn request(verb: &'static str, object: &ObjectId) -> impl FnOnce(kube::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Request { verb, object, source: Box::new(source) }
    }
}

/// The kind and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId {
    api_version: String,
    kind: String,
    name: String,
}

impl ObjectId {
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        Self { api_version: api_version.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
    }

    /// Returns the controller of an object, according to its owner references.
    fn controller_of(object: &DynamicObject) -> Option<Self> {
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        Some(Self::new(&owner.api_version, &owner.kind, &owner.name))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

/// An object to move, and its owner, if it has one. Named as in clusterctl's object graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    object: ObjectId,
    owner: Option<ObjectId>,
}

/// A move of the objects in a namespace.
#[derive(Clone, Copy)]
pub struct ClusterctlMove<'a> {
    pub source: &'a kube::Client,
    pub target: &'a kube::Client,
    pub namespace: &'a str,
    /// How long to wait after each change, so that managers react to it.
    pub pause: Duration,
}

impl ClusterctlMove<'_> {
    /// Pauses or resumes a Cluster on the source or the target.
    pub async fn set_paused(&self, client: &kube::Client, cluster: &str, paused: bool) -> Result<(), Error> {
        let id = ObjectId::new(CAPI, "Cluster", cluster);
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let patched = self.api(client, &id).patch(cluster, &PatchParams::default(), &patch).await;
        patched.map_err(Error::request("pause or resume", &id))?;
        self.wait().await;
        Ok(())
    }

    /// Returns the objects of the namespace in the order of their creation, owners first: the Secrets and Clusters with
    /// these names, all ExtensionCatalogs, Extensions, AddonPolicies, HelmChartProxies and ExtensionInstances, the
    /// kubeconfigs of the Clusters, every SandboxControlPlane, all HelmReleaseProxies and AddonReleases, and the Secrets that
    /// belong to these or to a placement.
    pub async fn graph(&self, secrets: &[&str], clusters: &[&str]) -> Result<Vec<Node>, Error> {
        let cluster_id = |name: &str| ObjectId::new(CAPI, "Cluster", name);
        let mut nodes = Vec::new();
        for secret in secrets {
            nodes.push(Node { object: ObjectId::new("v1", "Secret", secret), owner: None });
        }
        for cluster in clusters {
            nodes.push(Node { object: cluster_id(cluster), owner: None });
        }
        for (api_version, kind) in [
            (EXTENSIONS, "ExtensionCatalog"),
            (EXTENSIONS, "Extension"),
            (EXTENSIONS, "AddonPolicy"),
            (ADDONS, "HelmChartProxy"),
            (EXTENSIONS, "ExtensionInstance"),
        ] {
            nodes.extend(self.list(api_version, kind).await?);
        }
        for cluster in clusters {
            let object = ObjectId::new("v1", "Secret", &format!("{cluster}-kubeconfig"));
            nodes.push(Node { object, owner: Some(cluster_id(cluster)) });
        }
        for (api_version, kind) in [
            (CONTROL_PLANES, "SandboxControlPlane"),
            (ADDONS, "HelmReleaseProxy"),
            (EXTENSIONS, "AddonRelease"),
        ] {
            nodes.extend(self.list(api_version, kind).await?);
        }
        let is_owned = |node: &Node| {
            let owners = ["HelmChartProxy", "ExtensionInstance", "HelmReleaseProxy", "AddonRelease"];
            node.owner.as_ref().is_some_and(|owner| owners.contains(&owner.kind.as_str()))
        };
        nodes.extend(self.list("v1", "Secret").await?.into_iter().filter(is_owned));
        Ok(nodes)
    }

    /// Creates the objects on the target, and then deletes them from the source in reverse order. Returns those that were
    /// not created or deleted, because another client has done it.
    pub async fn run(&self, nodes: &[Node]) -> Result<Vec<String>, Error> {
        let mut skipped = Vec::new();
        for node in nodes {
            if !self.create(node).await? {
                skipped.push(format!("{} was not created", node.object));
            }
        }
        for node in nodes.iter().rev() {
            if !self.delete(&node.object).await? {
                skipped.push(format!("{} was not deleted", node.object));
            }
        }
        Ok(skipped)
    }

    /// `createTargetObject` of clusterctl: copies the object without its identity and points it to its owner on the target.
    /// Returns `false` if the source does not have it, or the target has it already.
    pub async fn create(&self, node: &Node) -> Result<bool, Error> {
        let Node { object: id, owner } = node;
        let found = self.api(self.source, id).get_opt(&id.name).await;
        let Some(mut object) = found.map_err(Error::request("read", id))? else { return Ok(false) };
        object.metadata.resource_version = None;
        object.metadata.uid = None;
        object.metadata.managed_fields = None;
        object.metadata.owner_references = None;
        if let Some(owner) = owner {
            object.metadata.owner_references = Some(vec![self.owner_reference(owner).await?]);
        }
        let is_created = match self.api(self.target, id).create(&PostParams::default(), &object).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 409 => false,
            Err(error) => return Err(Error::request("create", id)(error)),
        };
        self.wait().await;
        Ok(is_created)
    }

    /// `deleteSourceObject` of clusterctl: annotates the object, which removes all other annotations, deletes it, and
    /// removes its finalizers. Returns `false` if another client has deleted it.
    pub async fn delete(&self, id: &ObjectId) -> Result<bool, Error> {
        let objects = self.api(self.source, id);
        let annotate = Patch::<()>::Json(serde_json::from_value(json!([{
            "op": "add", "path": "/metadata/annotations",
            "value": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
        }]))?);
        let annotated = objects.patch(&id.name, &PatchParams::default(), &annotate).await;
        let annotated = ignore_not_found(annotated).map_err(Error::request("annotate", id))?;
        let Some(annotated) = annotated else { return Ok(false) };
        self.wait().await;
        let deleted = objects.delete(&id.name, &DeleteParams::default()).await.map(drop);
        let is_deleted = ignore_not_found(deleted).map_err(Error::request("delete", id))?.is_some();
        self.wait().await;
        let strip = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        let stripped = objects.patch(&id.name, &PatchParams::default(), &strip).await;
        // clusterctl retries and finds that the object is deleted.
        ignore_not_found(stripped).map_err(Error::request("remove the finalizers of", id))?;
        wait_deleted(&objects, id, annotated.uid().as_deref()).await?;
        Ok(is_deleted)
    }

    /// Returns the objects of a kind, each with its controller as its owner. A kind that is not served has none.
    async fn list(&self, api_version: &str, kind: &str) -> Result<Vec<Node>, Error> {
        let objects = namespaced(self.source, self.namespace, api_version, kind);
        let all = match objects.list(&ListParams::default()).await {
            Ok(all) => all.items,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => {
                return Err(Error::request("list", &ObjectId::new(api_version, kind, "objects"))(error));
            }
        };
        let node = |object: &DynamicObject| Node {
            object: ObjectId::new(api_version, kind, &object.name_any()),
            owner: ObjectId::controller_of(object),
        };
        Ok(all.iter().map(node).collect())
    }

    async fn owner_reference(&self, owner: &ObjectId) -> Result<OwnerReference, Error> {
        let found = self.api(self.target, owner).get(&owner.name).await;
        Ok(OwnerReference {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: found.map_err(Error::request("read", owner))?.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        })
    }

    fn api(&self, client: &kube::Client, id: &ObjectId) -> Api<DynamicObject> {
        namespaced(client, self.namespace, &id.api_version, &id.kind)
    }

    async fn wait(&self) {
        tokio::time::sleep(self.pause).await;
    }
}

/// Waits until the object with this UID does not exist.
async fn wait_deleted(objects: &Api<DynamicObject>, id: &ObjectId, uid: Option<&str>) -> Result<(), Error> {
    let deadline = Instant::now() + DELETION_TIMEOUT;
    loop {
        let found = objects.get_opt(&id.name).await.map_err(Error::request("read", id))?;
        if found.is_none_or(|found| found.uid().as_deref() != uid) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::NotDeleted { object: id.to_string() });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_controller_is_the_owner() {
        let with = |owners: serde_json::Value| -> DynamicObject {
            let metadata = json!({"name": "a", "ownerReferences": owners});
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "X", "metadata": metadata})).unwrap()
        };
        let cluster = json!({"apiVersion": CAPI, "kind": "Cluster", "name": "alpha", "uid": "1"});
        let placement = json!({
            "apiVersion": ADDONS, "kind": "HelmChartProxy", "name": "hello", "uid": "2", "controller": true,
        });
        let expected = ObjectId::new(ADDONS, "HelmChartProxy", "hello");
        assert_eq!(ObjectId::controller_of(&with(json!([cluster, placement]))), Some(expected));
        assert_eq!(ObjectId::controller_of(&with(json!([cluster]))), None);
        assert_eq!(ObjectId::controller_of(&with(json!([]))), None);
    }
}
