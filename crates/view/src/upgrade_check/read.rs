//! Reads what decides off the management cluster, page by page.

use chandler_controller::{Listed, cluster_resource};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;

use super::Error;
use crate::Progress;

const PAGE: u32 = 500;
const HINT: &str = "are Chandler's kinds installed (`chandler crds`), and may you list them?";

/// The clusters that are meant.
pub struct Chosen {
    /// Empty means all of them.
    pub names: Vec<String>,
    pub labels: Option<String>,
}

pub struct Reader<'a> {
    client: Client,
    /// `None` means all.
    namespace: Option<String>,
    platform: &'a str,
    progress: &'a dyn Progress,
}

impl<'a> Reader<'a> {
    pub fn new(
        client: Client,
        namespace: Option<String>,
        platform: &'a str,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { client, namespace, platform, progress }
    }

    /// The clusters that are meant, by name. None is an error, so that a pipeline with a typing error does not go on.
    pub async fn clusters(&self, chosen: &Chosen) -> Result<Vec<DynamicObject>, Error> {
        let resource = cluster_resource();
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let labelled = ListParams { label_selector: chosen.labels.clone(), ..ListParams::default() };
        let hint = "is Cluster API installed, and may you list Clusters?";
        let listed = self.pages(api, labelled, "clusters", hint).await?;
        let meant =
            |cluster: &DynamicObject| chosen.names.is_empty() || chosen.names.contains(&cluster.name_any());
        let stands = |cluster: &DynamicObject| cluster.metadata.deletion_timestamp.is_none();
        let mut clusters: Vec<_> =
            listed.into_iter().filter(|cluster| meant(cluster) && stands(cluster)).collect();
        clusters.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in any namespace".to_owned(),
        };
        let found = |name: &String| clusters.iter().any(|cluster| cluster.name_any() == *name);
        if let Some(missing) = chosen.names.iter().find(|name| !found(name)) {
            return Err(Error::NoSuchCluster { name: missing.clone(), place });
        }
        if clusters.is_empty() {
            return Err(Error::NoClusters { place });
        }
        Ok(clusters)
    }

    /// What decides about the extensions of clusters.
    pub async fn listed(&self) -> Result<Listed, Error> {
        Ok(Listed {
            instances: self.own("ExtensionInstances").await?,
            releases: self.own("AddonReleases").await?,
            extensions: self.with_platform("Extensions").await?,
            catalogs: self.with_platform("ExtensionCatalogs").await?,
        })
    }

    async fn own<K>(&self, what: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        self.pages(api, ListParams::default(), what, HINT).await
    }

    /// Those of the clusters' namespaces and, if that is not among them, of the platform's.
    async fn with_platform<K>(&self, what: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let mut all = self.own(what).await?;
        if self.namespace.as_deref().is_some_and(|own| own != self.platform) {
            let api = Api::namespaced(self.client.clone(), self.platform);
            let what = format!("{what} of the platform, in namespace {}", self.platform);
            all.extend(self.pages(api, ListParams::default(), &what, HINT).await?);
        }
        Ok(all)
    }

    async fn pages<K>(
        &self,
        api: Api<K>,
        page: ListParams,
        what: &str,
        hint: &'static str,
    ) -> Result<Vec<K>, Error>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut page = page.limit(PAGE);
        let mut all = Vec::new();
        loop {
            self.progress.report(format!("reading: {} {what}", all.len()));
            let list = api.list(&page).await.map_err(|error| Error::List {
                hint,
                what: what.to_owned(),
                source: Box::new(error),
            })?;
            all.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}
