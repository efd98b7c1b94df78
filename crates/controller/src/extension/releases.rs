//! The release objects of an ExtensionInstance.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::extensions::{
    AddonRelease, ClusterResolution, ExtensionInstance, ExtensionReference, PackageSource, Scope,
};
use chandler_core::{
    extension::{ExtensionKey, implicit_instance_name},
    failure::Failure,
    identity::{ClusterKey, ClusterMap},
    placement::{ReleaseContent, addon_release, addon_release_name},
    resolution::VersionName,
};
use kube::{ResourceExt as _, api::DynamicObject, runtime::reflector::ObjectRef};

use super::{
    folders::FolderPackages,
    registry::RegisteredExtension,
    resolver::{ResolveError, Resolved, Resolver},
    values::{ComposedValues, Layers, Values},
};
use crate::{
    ReconcileError, clusters,
    placement::{ComposeError, ComposeMode, Composed, ComposedRelease},
    release::{CatalogFolder, NamedCatalogs},
    tasks::take_turns,
};

/// Composes the release objects of instances.
pub struct InstanceReleases {
    pub resolver: Arc<Resolver>,
    pub catalogs: NamedCatalogs,
    pub folders: FolderPackages,
    pub values: Values,
    pub clusters: clusters::Clusters,
}

/// The release object of an instance without its values.
pub(super) struct Draft {
    pub content: ReleaseContent,
    pub layers: Layers,
    /// Set if the package comes from a catalog that is a folder of a Source.
    pub offered: Option<CatalogFolder>,
    /// The Kubernetes version of the cluster, if the version was chosen for it.
    pub kubernetes: Option<String>,
    /// Why the requested version cannot be chosen, if another one is kept.
    pub refused: Option<String>,
}

impl InstanceReleases {
    /// Returns why a release must stay although its instance no longer selects the cluster.
    pub fn is_needed(&self, release: &AddonRelease) -> Option<String> {
        let key = ClusterKey::new(release.namespace()?, release.spec.cluster.clone());
        let lives =
            self.clusters.get(&key).is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_none());
        if !lives {
            return None;
        }
        let name = release.name_any();
        let others = self.resolver.releases.on_cluster(&key);
        // Dependents may refer to the object that takes the release over before it exists.
        let extension = release.spec.extension.as_deref().map(ExtensionKey::parse);
        let successor = extension
            .map(|extension| implicit_instance_name(&extension.local_name(), &key.name))
            .unwrap_or_default();
        let exists = |name: &String| {
            others
                .iter()
                .any(|other| other.name_any() == *name && other.metadata.deletion_timestamp.is_none())
        };
        let needing = others.iter().filter(|other| {
            let depends_on = &other.spec.depends_on;
            depends_on.contains(&name) || depends_on.contains(&successor) && !exists(&successor)
        });
        let needing: Vec<_> =
            needing.map(|other| other.spec.extension.clone().unwrap_or_else(|| other.name_any())).collect();
        (!needing.is_empty())
            .then(|| format!("stays until {} is removed, which needs it", needing.join(", ")))
    }

    /// Returns the release object for each of `clusters`.
    pub async fn compose(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<AddonRelease>>,
        mode: &ComposeMode<'_, AddonRelease>,
    ) -> Result<Composed<AddonRelease>, ReconcileError> {
        let (mut composed, mut drafts) = (BTreeMap::new(), BTreeMap::new());
        for (done, (key, cluster)) in clusters.iter().enumerate() {
            take_turns(done).await;
            match self.draft(instance, key, cluster, mode.package_of).await {
                Ok(Some(draft)) => {
                    drafts.insert(key.clone(), draft);
                }
                Ok(None) => {}
                Err(error) => {
                    composed.insert(key.clone(), Err(error));
                }
            }
        }
        let failed = self.set_folders(&mut drafts).await;
        composed.extend(failed.into_iter().map(|(key, error)| (key, Err(error))));
        let failed = self.folders.pin(instance, clusters, existing, mode.package_of, &mut drafts).await?;
        composed.extend(failed.into_iter().map(|(key, error)| (key, Err(error))));
        let layers = drafts.iter().filter_map(|(key, draft)| {
            Some((key.clone(), (clusters.get(key)?.clone(), draft.layers.clone())))
        });
        let mut values = self.values.of(instance, layers.collect(), existing, mode.write_values).await?;
        for (key, draft) in drafts {
            let there = existing.get(&key).map(AsRef::as_ref);
            let object = match values.remove(&key).unwrap_or(Err(ComposeError::NoValues)) {
                Ok(ComposedValues { values, values_secret, parameters, defaults, unwritten, secrets }) => {
                    let content = ReleaseContent { values, values_secret, ..draft.content };
                    let content = self.folders.build(instance, &key, content, there).await;
                    content.map(|content| ComposedRelease {
                        object: addon_release(instance, &key, content, there),
                        parameters,
                        defaults,
                        kubernetes: draft.kubernetes,
                        refused: draft.refused,
                        unwritten_values: unwritten,
                        secrets,
                    })
                }
                Err(error) => Err(error),
            };
            composed.insert(key, object);
        }
        Ok(composed)
    }

    /// Sets the folders of drafts whose package comes from a catalog that is a folder of a Source. Removes drafts that fail, and
    /// returns why.
    async fn set_folders(&self, drafts: &mut ClusterMap<Draft>) -> ClusterMap<ComposeError> {
        // Clusters with the same package share the result, also if it is a failure.
        let mut known: HashMap<PackageSource, Result<Option<CatalogFolder>, Failure>> = HashMap::new();
        let mut failed = BTreeMap::new();
        for (key, draft) in drafts.iter_mut() {
            let source = &draft.content.source;
            if source.catalog.is_none() {
                continue;
            }
            let found = match known.get(source) {
                Some(found) => found.clone(),
                None => self.catalogs.folder(&key.namespace, source).await,
            };
            known.insert(source.clone(), found.clone());
            match found {
                Ok(Some(folder)) => {
                    let catalog = source.catalog.as_ref().filter(|catalog| catalog.scope == Scope::Platform);
                    draft.content.platform_catalog = catalog.map(|catalog| catalog.name.clone());
                    draft.content.source = folder.offered.source.clone();
                    draft.layers.source = folder.offered.source.clone();
                    draft.offered = Some(folder);
                }
                Ok(None) => {}
                Err(failure) => {
                    failed.insert(key.clone(), failure.into());
                }
            }
        }
        drafts.retain(|key, _| !failed.contains_key(key));
        failed
    }

    /// Returns `None` if an existing release object is to be left unchanged.
    async fn draft(
        &self,
        instance: &ExtensionInstance,
        cluster_key: &ClusterKey,
        cluster: &DynamicObject,
        package_of: Option<&AddonRelease>,
    ) -> Result<Option<Draft>, ComposeError> {
        let Some(reference) = &instance.spec.extension else {
            let source = instance.spec.source.clone().unwrap_or_default();
            let layers = Layers { source: source.clone(), ..Layers::default() };
            return Ok(Some(Draft {
                content: ReleaseContent { source, ..ReleaseContent::default() },
                layers,
                offered: None,
                kubernetes: None,
                refused: None,
            }));
        };
        let extension = self.key(reference, cluster_key).to_string();
        let registered = match self.registered(reference, cluster_key).await {
            Ok(None) if reference.catalog.is_some() => return Err(ComposeError::Pending),
            Ok(registered) => registered,
            Err(failure) => return Err(failure.into()),
        };
        let resolved = match self.resolver.resolve(cluster_key, cluster).await {
            Ok(resolved) => resolved,
            Err(ResolveError::Pending) => return Err(ComposeError::Pending),
            Err(ResolveError::UnknownKubernetes(why)) => return Err(why.into()),
        };
        let refused = resolved.resolution.refused.get(&extension);
        let Some(chosen) = resolved.resolution.chosen.get(&extension) else {
            // Neither chosen nor refused: it has to wait, or nothing requests it any more.
            return refused.map_or(Ok(None), |why| Err(ComposeError::NoVersion(why.clone())));
        };
        let Some(registered) = registered else { return Ok(None) };
        let donor = package_of.filter(|donor| donor.spec.extension.as_ref() == Some(&extension));
        let donated = donor.and_then(|donor| VersionName::parse(donor.spec.version.as_deref()?));
        let chosen_version = donated.as_ref().unwrap_or(&chosen.version);
        let Some(version) = registered.version(chosen_version) else { return Ok(None) };
        let source = self.scoped_source(cluster_key, &registered, &version.source);
        let content = ReleaseContent {
            extension: Some((extension, chosen_version.text.clone())),
            source: source.clone(),
            depends_on: self.depends_on(&resolved, &chosen.after, cluster_key),
            on_cluster_delete: registered.extension.spec.on_cluster_delete,
            ..ReleaseContent::default()
        };
        let parameters = version.parameters.clone().unwrap_or_default();
        let layers = Layers {
            defaults: parameters.defaults.unwrap_or_default(),
            defaults_template: parameters.defaults_template,
            schema: parameters.schema,
            source,
            pinned: None,
        };
        let kubernetes = Some(resolved.input.kubernetes.minors());
        let refused = refused.map(|_| chosen.message.clone());
        Ok(Some(Draft { content, layers, offered: None, kubernetes, refused }))
    }

    /// Returns the extension and its versions. `None` means that it does not exist or is not known yet.
    async fn registered(
        &self,
        reference: &ExtensionReference,
        cluster: &ClusterKey,
    ) -> Result<Option<Arc<RegisteredExtension>>, Failure> {
        if reference.catalog.is_some() {
            self.resolver.offers.registered(&cluster.namespace, reference).await
        } else {
            let platform = &self.resolver.platform.namespace;
            let namespace = self.key(reference, cluster).namespace(&cluster.namespace, platform);
            Ok(self.resolver.registry.get(namespace, &reference.name))
        }
    }

    /// Returns a source as the cluster's namespace has to refer to it: a catalog or Source beside a platform Extension is the
    /// platform's.
    fn scoped_source(
        &self,
        cluster: &ClusterKey,
        registered: &RegisteredExtension,
        source: &PackageSource,
    ) -> PackageSource {
        let mut source = source.clone();
        let home = registered.extension.namespace().unwrap_or_default();
        if home != cluster.namespace && home == self.resolver.platform.namespace {
            for reference in source.catalog.iter_mut().chain(&mut source.source_ref) {
                reference.scope = Scope::Platform;
            }
        }
        source
    }

    fn key(&self, reference: &ExtensionReference, cluster: &ClusterKey) -> ExtensionKey {
        ExtensionKey::of(reference, &cluster.namespace, &self.resolver.platform.namespace)
    }

    /// Returns the names of the release objects that must be ready first.
    fn depends_on(&self, resolved: &Resolved, after: &[String], cluster: &ClusterKey) -> Vec<String> {
        let name = |extension: &String| {
            let extension = ExtensionKey::parse(extension);
            let provider = resolved.demand.providers.get(&extension).and_then(|names| names.first());
            let provider = provider.and_then(|name| {
                self.resolver.instances.get(&ObjectRef::new(name).within(&cluster.namespace))
            });
            if let Some(provider) = provider {
                addon_release_name(&provider, &cluster.name)
            } else {
                implicit_instance_name(&extension.local_name(), &cluster.name)
            }
        };
        after.iter().map(name).collect()
    }

    pub fn resolution(
        &self,
        instance: &ExtensionInstance,
        cluster: &ClusterKey,
    ) -> Option<ClusterResolution> {
        let extension = self.key(instance.spec.extension.as_ref()?, cluster).to_string();
        let resolved = self.resolver.last(cluster)?;
        let (version, message) = match resolved.resolution.chosen.get(&extension) {
            Some(chosen) => (Some(chosen.version.text.clone()), chosen.message.clone()),
            None => (None, resolved.resolution.refused.get(&extension)?.clone()),
        };
        let kubernetes = Some(resolved.input.kubernetes.current.to_string());
        Some(ClusterResolution { cluster: cluster.name.clone(), version, kubernetes, message })
    }
}
