//! One look at the extensions of clusters, for who watches nothing: what the manager would ask, asked once.

use std::{collections::HashMap, sync::Arc};

use chandler_api::{
    capi::{ClusterView, ContractReference},
    extensions::{AddonRelease, Extension, ExtensionCatalog, ExtensionInstance},
};
use chandler_core::{
    extension::{Demand, Question, demand},
    failure::{Category, Failure},
    identity::ClusterKey,
    placement::PlacementFace as _,
};
use chandler_source::Packages;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    discovery,
};
use tokio::sync::Mutex;

use super::{
    Offers, Platform, Shelf,
    resolutions::known_kubernetes,
    shelf::{Look, Name, Volume},
};
use crate::{catalog::Catalogs, clusters, release::NamedCatalogs};

/// What was listed, of the clusters' namespaces and the platform's.
#[derive(Debug, Default)]
pub struct Listed {
    pub instances: Vec<ExtensionInstance>,
    pub releases: Vec<AddonRelease>,
    pub extensions: Vec<Extension>,
    pub catalogs: Vec<ExtensionCatalog>,
}

/// Asks about clusters what the manager would. Only sources that a cluster's extensions need are read, and once.
pub struct Outlook {
    client: Client,
    platform: Platform,
    offers: Offers,
    shelf: Shelf,
    instances: Vec<Arc<ExtensionInstance>>,
    releases: Vec<AddonRelease>,
    extensions: HashMap<Name, Arc<Extension>>,
    /// Extensions whose sources cannot be read. Who holds it publishes, so that nobody asks a source twice.
    unread: Mutex<HashMap<Name, Failure>>,
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
}

impl Outlook {
    pub fn new(client: Client, platform: Platform, packages: Arc<Packages>, listed: Listed) -> Self {
        let Listed { instances, releases, extensions, catalogs } = listed;
        let catalogs = NamedCatalogs {
            client: client.clone(),
            catalogs: Catalogs::listed(catalogs, packages.clone()),
            platform: platform.namespace.clone(),
        };
        let shelf = Shelf::default();
        let extensions: HashMap<_, _> = extensions
            .into_iter()
            .map(|extension| {
                let (namespace, name) = (extension.namespace().unwrap_or_default(), extension.name_any());
                shelf.awaits(&namespace, &name);
                ((namespace, name), Arc::new(extension))
            })
            .collect();
        Self {
            client,
            platform,
            offers: Offers { packages, catalogs },
            shelf,
            instances: instances.into_iter().map(Arc::new).collect(),
            releases,
            extensions,
            unread: Mutex::default(),
            kinds: Mutex::default(),
        }
    }

    /// What decides about a cluster's extensions.
    pub async fn question(&self, cluster: &DynamicObject) -> Result<Question, Failure> {
        let key = clusters::key(cluster)
            .ok_or_else(|| Failure::new(Category::InvalidSpec, "a Cluster without a namespace"))?;
        let control_plane = self.control_plane(&key, cluster).await?;
        let kubernetes = known_kubernetes(cluster, control_plane.as_ref())
            .map_err(|why| Failure::new(Category::InvalidSpec, why.to_string()))?;
        let demand = self.demand(&key, cluster).await?;
        let releases = self.releases.iter().filter(|release| {
            release.spec.cluster == key.name && release.namespace().as_deref() == Some(&key.namespace)
        });
        Ok(Question::new(&demand, releases, self.platform.version(), kubernetes))
    }

    /// What is asked for on a cluster. What that takes is published until nothing is missing.
    async fn demand(&self, key: &ClusterKey, cluster: &DynamicObject) -> Result<Demand, Failure> {
        let selecting = self.instances.iter().filter(|instance| instance.wants(key, cluster.labels()));
        let selecting: Vec<_> = selecting.cloned().collect();
        loop {
            let look = Look::at(&self.shelf);
            let demand = demand(&key.namespace, &self.platform.namespace, &selecting, &look);
            let awaited = look.awaited();
            if awaited.is_empty() {
                return Ok(demand);
            }
            for name in &awaited {
                self.publish(name).await?;
            }
        }
    }

    async fn publish(&self, name: &Name) -> Result<(), Failure> {
        let mut unread = self.unread.lock().await;
        if let Some(failure) = unread.get(name) {
            return Err(failure.clone());
        }
        let (namespace, plain) = name;
        let Some(extension) =
            self.extensions.get(name).filter(|_| self.shelf.get(namespace, plain).is_none())
        else {
            return Ok(());
        };
        match self.offers.published(extension).await {
            Ok(found) => {
                let volume = Volume { extension: extension.clone(), published: Arc::new(found.published) };
                self.shelf.put(namespace, plain, volume);
                Ok(())
            }
            Err(failure) => {
                let told = format!("Extension {namespace}/{plain}: {}", failure.message);
                let failure = Failure { message: told, ..failure };
                unread.insert(name.clone(), failure.clone());
                Err(failure)
            }
        }
    }

    async fn control_plane(
        &self,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<Option<DynamicObject>, Failure> {
        let view = ClusterView::of(&cluster.data).unwrap_or_default();
        let Some(reference) = view.spec.control_plane_ref else { return Ok(None) };
        let unknown = |error: &dyn std::fmt::Display| {
            let why = format!(
                "the cluster's Kubernetes version is unknown: {} {}/{}: {error}",
                reference.kind, key.namespace, reference.name
            );
            Failure::new(Category::Unreachable, why)
        };
        let resource = self.kind(&reference).await.map_err(|error| unknown(&error))?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        api.get(&reference.name).await.map(Some).map_err(|error| unknown(&error))
    }

    /// A kind in the version that its group recommends. Where a control plane tells its Kubernetes is the same in every
    /// contract, so nobody needs the right to read definitions for this.
    async fn kind(&self, of: &ContractReference) -> Result<ApiResource, kube::Error> {
        let mut kinds = self.kinds.lock().await;
        let name = (of.api_group.clone(), of.kind.clone());
        if let Some(known) = kinds.get(&name) {
            return Ok(known.clone());
        }
        let group = discovery::group(&self.client, &of.api_group).await?;
        let found = group.recommended_kind(&of.kind).map(|(resource, _)| resource);
        let missing = || kube::error::DiscoveryError::MissingKind(format!("{}.{}", of.kind, of.api_group));
        let found = found.ok_or_else(|| kube::Error::Discovery(missing()))?;
        kinds.insert(name, found.clone());
        Ok(found)
    }
}
