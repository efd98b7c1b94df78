//! Reads what decides off the management cluster, page by page.

use anyhow::{Context as _, Result, bail};
use chandler_controller::{Listed, cluster_resource};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;

use crate::progress::Progress;

const PAGE: u32 = 500;

/// The clusters that are meant.
pub struct Chosen {
    /// Empty: all of them.
    pub names: Vec<String>,
    pub labels: Option<String>,
}

pub struct Reader<'a> {
    client: Client,
    /// None: all.
    namespace: Option<String>,
    platform: &'a str,
    progress: &'a Progress,
}

impl<'a> Reader<'a> {
    pub fn new(client: Client, namespace: Option<String>, platform: &'a str, progress: &'a Progress) -> Self {
        Self { client, namespace, platform, progress }
    }

    /// The clusters that are meant, by name. None is an error, so that a pipeline with a typing error does not go on.
    pub async fn clusters(&self, chosen: &Chosen) -> Result<Vec<DynamicObject>> {
        let resource = cluster_resource();
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let labelled = ListParams { label_selector: chosen.labels.clone(), ..ListParams::default() };
        let listed = self.pages(api, labelled, "clusters").await;
        let listed = listed.context("is Cluster API installed, and may you list Clusters?")?;
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
            bail!("there is no Cluster {missing} {place}, or it is being deleted");
        }
        if clusters.is_empty() {
            bail!("there is no such Cluster {place}; other namespaces: --namespace or --all-namespaces");
        }
        Ok(clusters)
    }

    /// What decides about the extensions of clusters.
    pub async fn listed(&self) -> Result<Listed> {
        Ok(Listed {
            instances: self.own("ExtensionInstances").await?,
            releases: self.own("AddonReleases").await?,
            extensions: self.with_platform("Extensions").await?,
            catalogs: self.with_platform("ExtensionCatalogs").await?,
        })
    }

    async fn own<K>(&self, what: &str) -> Result<Vec<K>>
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
        self.pages(api, ListParams::default(), what).await.with_context(hint)
    }

    /// Those of the clusters' namespaces and, if that is not among them, of the platform's.
    async fn with_platform<K>(&self, what: &str) -> Result<Vec<K>>
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
            all.extend(self.pages(api, ListParams::default(), &what).await.with_context(hint)?);
        }
        Ok(all)
    }

    async fn pages<K>(&self, api: Api<K>, page: ListParams, what: &str) -> Result<Vec<K>>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut page = page.limit(PAGE);
        let mut all = Vec::new();
        loop {
            self.progress.tell(format!("reading: {} {what}", all.len()));
            let list = api.list(&page).await.with_context(|| format!("listing {what}"))?;
            all.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}

fn hint() -> &'static str {
    "are Chandler's kinds installed (`chandler crds`), and may you list them?"
}
