//! Moves the objects of a namespace to another management cluster, with the steps of `clusterctl move`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use chandler_api::addons::CHART_PROXY_NAME_LABEL;
use chandler_sandbox::dynamic_api::{ignore_not_found, namespaced};
use kube::{
    Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    action::Cluster,
    objects::{ADDONS, CA_SECRET, CAPI, initialized, kubeconfig_secret_name},
};

/// Long enough for a manager to react to a change.
const REACTION_TIME: Duration = Duration::from_millis(300);
/// How long deletions may take to complete before a move.
const DELETIONS_TIMEOUT: Duration = Duration::from_secs(10);
const DELETED_TIMEOUT: Duration = Duration::from_secs(20);

/// A move of the objects in a namespace.
pub struct Mover<'a> {
    pub source: &'a Client,
    pub target: &'a Client,
    pub namespace: &'a str,
}

/// An object to move, and its owner, if it has one. Named as in clusterctl's object graph.
struct Node {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    owner: Option<(&'static str, &'static str, String)>,
}

impl Node {
    fn new(api_version: &'static str, kind: &'static str, name: &str) -> Self {
        Self { api_version, kind, name: name.to_owned(), owner: None }
    }
}

impl Mover<'_> {
    /// Moves all objects. Clusters stay paused on the target if `is_paused`. Returns false without a change if objects
    /// are being deleted, because clusterctl refuses to move those.
    pub async fn run(&self, is_paused: impl Fn(Cluster) -> bool) -> Result<bool> {
        if !self.wait_no_deletions().await? {
            return Ok(false);
        }
        for cluster in Cluster::ALL {
            self.set_paused(self.source, cluster, true).await?;
        }
        tokio::time::sleep(REACTION_TIME).await;
        let nodes = self.graph().await?;
        for node in &nodes {
            self.create(node).await.with_context(|| format!("creating {} {}", node.kind, node.name))?;
        }
        for node in nodes.iter().rev() {
            self.delete(node).await.with_context(|| format!("deleting {} {}", node.kind, node.name))?;
        }
        for cluster in Cluster::ALL {
            self.set_initialized(cluster).await?;
            self.set_paused(self.target, cluster, is_paused(cluster)).await?;
        }
        Ok(true)
    }

    async fn wait_no_deletions(&self) -> Result<bool> {
        let deadline = Instant::now() + DELETIONS_TIMEOUT;
        loop {
            let mut deleting = 0;
            for kind in ["HelmChartProxy", "HelmReleaseProxy"] {
                let all = namespaced(self.source, self.namespace, ADDONS, kind)
                    .list(&ListParams::default())
                    .await?;
                deleting += all.iter().filter(|object| object.metadata.deletion_timestamp.is_some()).count();
            }
            if deleting == 0 || Instant::now() > deadline {
                return Ok(deleting == 0);
            }
            tokio::time::sleep(REACTION_TIME).await;
        }
    }

    async fn set_paused(&self, client: &Client, cluster: Cluster, paused: bool) -> Result<()> {
        let clusters = namespaced(client, self.namespace, CAPI, "Cluster");
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        clusters.patch(cluster.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn set_initialized(&self, cluster: Cluster) -> Result<()> {
        let clusters = namespaced(self.target, self.namespace, CAPI, "Cluster");
        let patch = Patch::Merge(initialized());
        clusters.patch_status(cluster.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Returns the objects in the order of their creation: owners first.
    async fn graph(&self) -> Result<Vec<Node>> {
        let mut nodes = vec![Node::new("v1", "Secret", CA_SECRET)];
        nodes.extend(Cluster::ALL.map(|cluster| Node::new(CAPI, "Cluster", cluster.name())));
        for placement in self.list("HelmChartProxy").await? {
            nodes.push(Node::new(ADDONS, "HelmChartProxy", &placement.name_any()));
        }
        for cluster in Cluster::ALL {
            let owner = Some((CAPI, "Cluster", cluster.name().to_owned()));
            nodes.push(Node { owner, ..Node::new("v1", "Secret", &kubeconfig_secret_name(cluster)) });
        }
        for release in self.list("HelmReleaseProxy").await? {
            let placement = release.labels().get(CHART_PROXY_NAME_LABEL).cloned();
            let owner = placement.map(|placement| (ADDONS, "HelmChartProxy", placement));
            nodes.push(Node { owner, ..Node::new(ADDONS, "HelmReleaseProxy", &release.name_any()) });
        }
        Ok(nodes)
    }

    async fn list(&self, kind: &str) -> Result<Vec<DynamicObject>> {
        Ok(namespaced(self.source, self.namespace, ADDONS, kind).list(&ListParams::default()).await?.items)
    }

    /// `createTargetObject` of clusterctl: copies the object without its identity and points it to its owner on the target.
    async fn create(&self, node: &Node) -> Result<()> {
        let found =
            namespaced(self.source, self.namespace, node.api_version, node.kind).get_opt(&node.name).await?;
        let Some(mut object) = found else { return Ok(()) };
        object.metadata.resource_version = None;
        object.metadata.uid = None;
        object.metadata.owner_references = None;
        object.metadata.managed_fields = None;
        if let Some((api_version, kind, name)) = &node.owner {
            let owner = namespaced(self.target, self.namespace, api_version, kind).get(name).await?;
            let references = json!([{
                "apiVersion": api_version, "kind": kind, "name": name, "uid": owner.uid(), "controller": true,
            }]);
            object.metadata.owner_references = Some(serde_json::from_value(references)?);
        }
        let objects = namespaced(self.target, self.namespace, node.api_version, node.kind);
        match objects.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => Ok(created.map(drop)?),
        }
    }

    /// `deleteSourceObject` of clusterctl: annotates the object, which removes all other annotations, deletes it, and
    /// removes its finalizers.
    async fn delete(&self, node: &Node) -> Result<()> {
        let objects = namespaced(self.source, self.namespace, node.api_version, node.kind);
        let annotate = Patch::<()>::Json(serde_json::from_value(json!([{
            "op": "add", "path": "/metadata/annotations",
            "value": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
        }]))?);
        let Some(object) =
            ignore_not_found(objects.patch(&node.name, &PatchParams::default(), &annotate).await)?
        else {
            return Ok(());
        };
        ignore_not_found(objects.delete(&node.name, &DeleteParams::default()).await.map(drop))?;
        let strip = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        ignore_not_found(objects.patch(&node.name, &PatchParams::default(), &strip).await)?;
        let deadline = Instant::now() + DELETED_TIMEOUT;
        while objects.get_opt(&node.name).await?.is_some_and(|left| left.uid() == object.uid()) {
            if Instant::now() > deadline {
                bail!("it was not deleted within {DELETED_TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}
