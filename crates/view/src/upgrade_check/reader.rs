//! Reads clusters, and the objects from which their extensions are resolved, from the management cluster.

use std::fmt::Debug;

use chandler_controller::{Listed, cluster_resource};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;

use super::{Error, followers::Charts};
use crate::{
    Progress,
    paging::{CLUSTER_API_HINT, CRD_HINT, list_all},
};

/// Selects clusters by name or by labels.
pub struct ClusterFilter {
    /// Empty means all clusters.
    pub names: Vec<String>,
    pub label_selector: Option<String>,
}

pub struct InputReader<'a> {
    client: Client,
    /// `None` means all namespaces.
    namespace: Option<String>,
    platform_namespace: &'a str,
    progress: &'a dyn Progress,
}

impl<'a> InputReader<'a> {
    pub fn new(
        client: Client,
        namespace: Option<String>,
        platform_namespace: &'a str,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { client, namespace, platform_namespace, progress }
    }

    /// Returns the clusters that match the filter and are not being deleted, sorted by name. Fails if there are none or
    /// a named cluster is missing, so that a typing error fails a pipeline.
    pub async fn clusters(&self, filter: &ClusterFilter) -> Result<Vec<DynamicObject>, Error> {
        let ClusterFilter { names, label_selector } = filter;
        let resource = cluster_resource();
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let params = ListParams { label_selector: label_selector.clone(), ..ListParams::default() };
        let mut clusters = self.list(api, params, "clusters", CLUSTER_API_HINT).await?;
        clusters.retain(|cluster| {
            (names.is_empty() || names.contains(&cluster.name_any()))
                && cluster.metadata.deletion_timestamp.is_none()
        });
        clusters.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
        let scope = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in any namespace".to_owned(),
        };
        let is_found = |name: &String| clusters.iter().any(|cluster| cluster.name_any() == *name);
        if let Some(missing) = names.iter().find(|name| !is_found(name)) {
            return Err(Error::ClusterNotFound { name: missing.clone(), scope });
        }
        if clusters.is_empty() {
            return Err(Error::NoClusters { scope });
        }
        Ok(clusters)
    }

    /// Returns the objects from which the extensions of the clusters are resolved.
    pub async fn listed(&self) -> Result<Listed, Error> {
        Ok(Listed {
            instances: self.list_namespace("ExtensionInstances").await?,
            releases: self.list_namespace("AddonReleases").await?,
            extensions: self.list_with_platform("Extensions").await?,
            catalogs: self.list_with_platform("ExtensionCatalogs").await?,
        })
    }

    /// Returns the HelmChartProxies whose versions may follow Kubernetes, and their release objects.
    pub async fn charts(&self) -> Result<Charts, Error> {
        Ok(Charts {
            placements: self.list_namespace("HelmChartProxies").await?,
            releases: self.list_namespace("HelmReleaseProxies").await?,
        })
    }

    /// Lists the objects in the namespace of the clusters.
    async fn list_namespace<K>(&self, kind: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        self.list(api, ListParams::default(), kind, CRD_HINT).await
    }

    /// Lists the objects in the namespace of the clusters and in the platform namespace.
    async fn list_with_platform<K>(&self, kind: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let mut all = self.list_namespace(kind).await?;
        if self.namespace.as_deref().is_some_and(|namespace| namespace != self.platform_namespace) {
            let api = Api::namespaced(self.client.clone(), self.platform_namespace);
            let objects = format!("{kind} in the platform namespace {}", self.platform_namespace);
            all.extend(self.list(api, ListParams::default(), &objects, CRD_HINT).await?);
        }
        Ok(all)
    }

    async fn list<K>(
        &self,
        api: Api<K>,
        params: ListParams,
        objects: &str,
        hint: &'static str,
    ) -> Result<Vec<K>, Error>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let all = list_all(api, params, objects, self.progress).await;
        all.map_err(|error| Error::List { hint, objects: objects.to_owned(), source: Box::new(error) })
    }
}
