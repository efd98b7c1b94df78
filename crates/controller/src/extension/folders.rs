//! The packages of releases that are made of folders of Sources.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use chandler_api::extensions::{AddonRelease, ExtensionInstance, PackageSource, PinnedPackage};
use chandler_core::{
    failure::{Category, Failure},
    identity::{ClusterKey, ClusterMap},
    placement::{ReleaseContent, pin},
    source::{Content, evaluated_path},
};
use kube::{ResourceExt as _, api::DynamicObject};

use super::releases::Draft;
use crate::{
    ReconcileError,
    placement::ComposeError,
    sources::{Folder, SourcePackages},
    tasks::take_turns,
    templates::Templates,
};

/// Finds the folder of each cluster, and pins the package that is made of it.
pub struct FolderPackages {
    pub packages: SourcePackages,
    pub templates: Templates,
}

impl FolderPackages {
    /// Sets the folders and packages of drafts whose package is in a Source. Removes drafts that fail, and returns why.
    pub(super) async fn pin(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<AddonRelease>>,
        drafts: &mut ClusterMap<Draft>,
    ) -> Result<ClusterMap<ComposeError>, ReconcileError> {
        let mut failed = self.set_paths(instance, clusters, drafts).await?;
        // The clusters of one folder share the result, also if it is a failure.
        let mut made: HashMap<PackageSource, Result<Option<PinnedPackage>, Failure>> = HashMap::new();
        for (done, (key, draft)) in drafts.iter_mut().enumerate() {
            take_turns(done).await;
            let source = &draft.content.source;
            if source.source_ref.is_none() || failed.contains_key(key) {
                continue;
            }
            let folder = Folder { source, namespace: &key.namespace };
            let result = match made.get(source) {
                Some(result) => result.clone(),
                None => self.package(folder).await,
            };
            made.insert(source.clone(), result.clone());
            match result {
                Ok(package) => {
                    let there = existing.get(key).map(AsRef::as_ref);
                    let package = package.map(|package| pin(there, source, package));
                    draft.layers.pinned.clone_from(&package);
                    draft.content.pinned = package;
                }
                Err(failure) => {
                    failed.insert(key.clone(), failure.into());
                }
            }
        }
        drafts.retain(|key, _| !failed.contains_key(key));
        Ok(failed)
    }

    /// Returns the package of a folder. `None` means a kustomization, which is built with the values.
    async fn package(&self, folder: Folder<'_>) -> Result<Option<PinnedPackage>, Failure> {
        match self.packages.content(folder).await? {
            Content::Kustomization => Ok(None),
            Content::Chart | Content::Manifests => self.packages.make(folder, None).await.map(Some),
        }
    }

    /// Evaluates the paths of folders, which may be templates, for each cluster. Returns why that failed for some.
    async fn set_paths(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        drafts: &mut ClusterMap<Draft>,
    ) -> Result<ClusterMap<ComposeError>, ReconcileError> {
        let templates: BTreeSet<_> = drafts.values().filter_map(path_template).collect();
        let placement = format!("{} path", instance.uid().unwrap_or_default());
        let mut failed = BTreeMap::new();
        for template in templates {
            let wanted = |key: &&ClusterKey| {
                drafts.get(*key).and_then(path_template).is_some_and(|path| path == template)
            };
            let concerned = clusters.keys().filter(wanted).cloned();
            let concerned: ClusterMap<_> =
                concerned.filter_map(|key| Some((key.clone(), clusters.get(&key)?.clone()))).collect();
            for (key, path) in self.templates.evaluate_all(&placement, &template, &concerned).await? {
                match (path, drafts.get_mut(&key)) {
                    (Ok(path), Some(draft)) => match evaluated_path(&template, &path) {
                        Ok(path) => {
                            draft.content.source.path = Some(path.clone());
                            draft.layers.source.path = Some(path);
                        }
                        Err(failure) => {
                            failed.insert(key, failure.into());
                        }
                    },
                    (Err(error), _) => {
                        failed.insert(key, error);
                    }
                    (Ok(_), None) => {}
                }
            }
        }
        Ok(failed)
    }

    /// Builds the package of a kustomization, with the values of its release.
    pub(super) async fn build(
        &self,
        cluster: &ClusterKey,
        content: ReleaseContent,
        existing: Option<&AddonRelease>,
    ) -> Result<ReleaseContent, ComposeError> {
        if content.source.source_ref.is_none() || content.pinned.is_some() {
            return Ok(content);
        }
        if content.values_secret.is_some() {
            let message = "a kustomization cannot have parameters of a Secret, because they would be part of its package; \
                           use a chart or plain manifests";
            return Err(Failure::new(Category::InvalidSpec, message).into());
        }
        let folder = Folder { source: &content.source, namespace: &cluster.namespace };
        let made = self.packages.make(folder, content.values.as_deref()).await?;
        let pinned = Some(pin(existing, &content.source, made));
        Ok(ReleaseContent { pinned, ..content })
    }
}

/// Returns the path of a draft's folder, if it is a template.
fn path_template(draft: &Draft) -> Option<String> {
    draft.content.source.path.clone().filter(|path| path.contains("{{"))
}
