//! Resolves clusters once, without watches, from the same input as the manager.

use std::{collections::HashMap, sync::Arc};

use chandler_api::{
    capi::{ClusterView, ContractReference},
    extensions::{AddonRelease, Extension, ExtensionCatalog, ExtensionInstance},
};
use chandler_core::{
    extension::{Demand, ResolutionInput, demand},
    failure::{Category, Failure},
    identity::ClusterKey,
    placement::PlacementKind as _,
};
use chandler_source::Packages;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    discovery,
};
use tokio::sync::Mutex;

use super::{known_kubernetes, platform::Platform};
use crate::{
    catalog::Catalogs,
    clusters,
    extension::registry::{ExtensionRegistry, Name, RegisteredExtension, offers::Offers},
    planner::SourceReader,
    release::NamedCatalogs,
    sources::SourcePackages,
};

/// The objects of the clusters' namespaces and of the platform's namespace.
#[derive(Debug, Default)]
pub struct Listed {
    pub instances: Vec<ExtensionInstance>,
    pub releases: Vec<AddonRelease>,
    pub extensions: Vec<Extension>,
    pub catalogs: Vec<ExtensionCatalog>,
}

/// Resolves clusters as the manager would. It reads only the sources that a cluster's extensions need, each once.
pub struct OneShotResolver {
    client: Client,
    platform: Platform,
    offers: Offers,
    registry: ExtensionRegistry,
    instances: Vec<Arc<ExtensionInstance>>,
    releases: Vec<AddonRelease>,
    extensions: HashMap<Name, Arc<Extension>>,
    /// Extensions whose sources cannot be read. The lock is held while an Extension is published, so that each source is
    /// read once.
    unread: Mutex<HashMap<Name, Failure>>,
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
    /// Reads the Sources and catalogs of an Extension before it is published. `None` means that none are read.
    reader: Option<SourceReader>,
}

impl OneShotResolver {
    pub fn new(client: Client, platform: Platform, packages: Arc<Packages>, listed: Listed) -> Self {
        let Listed { instances, releases, extensions, catalogs } = listed;
        let catalogs = Catalogs::listed(catalogs, packages.clone());
        let catalogs = NamedCatalogs::new(client.clone(), catalogs, platform.namespace.clone());
        let registry = ExtensionRegistry::default();
        let extensions: HashMap<_, _> = extensions
            .into_iter()
            .map(|extension| {
                let (namespace, name) = (extension.namespace().unwrap_or_default(), extension.name_any());
                registry.insert_pending(&namespace, &name);
                ((namespace, name), Arc::new(extension))
            })
            .collect();
        Self {
            client,
            platform,
            offers: Offers { packages, catalogs, source_packages: None },
            registry,
            instances: instances.into_iter().map(Arc::new).collect(),
            releases,
            extensions,
            unread: Mutex::default(),
            kinds: Mutex::default(),
            reader: None,
        }
    }

    /// Also resolves Extensions whose packages are in Sources or in catalogs, which the reader reads.
    pub(crate) fn reading_sources(mut self, source_packages: SourcePackages, reader: SourceReader) -> Self {
        self.offers.source_packages = Some(source_packages);
        self.reader = Some(reader);
        self
    }

    /// Returns the Extensions, with the versions that were read so far.
    pub(crate) fn registry(&self) -> ExtensionRegistry {
        self.registry.clone()
    }

    /// Returns the input of the resolution of a cluster.
    pub async fn input(&self, cluster: &DynamicObject) -> Result<ResolutionInput, Failure> {
        let key = clusters::key(cluster)
            .ok_or_else(|| Failure::new(Category::InvalidSpec, "a Cluster without a namespace"))?;
        let control_plane = self.control_plane(&key, cluster).await?;
        let kubernetes = known_kubernetes(cluster, control_plane.as_ref())
            .map_err(|why| Failure::new(Category::InvalidSpec, why.to_string()))?;
        let demand = self.demand(&key, cluster).await?;
        let releases = self.releases.iter().filter(|release| {
            release.spec.cluster == key.name && release.namespace().as_deref() == Some(&key.namespace)
        });
        Ok(ResolutionInput::new(&demand, releases, self.platform.version(), kubernetes))
    }

    /// Returns the extensions that a cluster requests, after it has published all that they need.
    async fn demand(&self, key: &ClusterKey, cluster: &DynamicObject) -> Result<Demand, Failure> {
        let selecting = self.instances.iter().filter(|instance| instance.selects(key, cluster.labels()));
        let selecting: Vec<_> = selecting.cloned().collect();
        loop {
            let snapshot = self.registry.snapshot();
            let demand = demand(&key.namespace, &self.platform.namespace, &selecting, &snapshot);
            let missing = snapshot.into_missing();
            if missing.is_empty() {
                return Ok(demand);
            }
            for name in &missing {
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
            self.extensions.get(name).filter(|_| self.registry.get(namespace, plain).is_none())
        else {
            return Ok(());
        };
        if let Some(reader) = &self.reader {
            reader.read_for_extension(namespace, &extension.spec).await;
        }
        match self.offers.published(extension).await {
            Ok(found) => {
                let registered = RegisteredExtension {
                    extension: extension.clone(),
                    published: Arc::new(found.published),
                };
                self.registry.insert(namespace, plain, registered);
                Ok(())
            }
            Err(failure) => {
                let message = format!("Extension {namespace}/{plain}: {}", failure.message);
                let failure = Failure { message, ..failure };
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

    /// Returns a kind in the version that its group recommends. The field with the Kubernetes version is the same in every
    /// contract version, so no permission to read CustomResourceDefinitions is needed.
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
