//! HelmChartProxy: the values of its releases are its template, evaluated for each cluster; the version may depend on the
//! Kubernetes version of the cluster.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    status::PlacementStatus,
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    placement::{
        KubernetesVersions, PlacementKind as _, RENDERED_FROM_ANNOTATION, Rendering, release_object,
        rendered_release_object, rendering,
    },
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::{ComposeServices, ManagedKind};
use crate::{
    ReconcileError,
    extension::Resolver,
    placement::{Compose, ComposeError, ComposeMode, Composed},
    tasks::take_turns,
    templates::{TemplateInput, Templates},
};

impl ManagedKind for HelmChartProxy {
    fn composer(services: &ComposeServices<'_>) -> Box<dyn Compose<Self>> {
        Box::new(Composer { templates: services.templates.clone(), resolver: services.resolver.clone() })
    }
}

struct Composer {
    templates: Templates,
    resolver: Arc<Resolver>,
}

impl Compose<HelmChartProxy> for Composer {
    fn compose<'a>(
        &'a self,
        placement: &'a HelmChartProxy,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<HelmReleaseProxy>>,
        _: &'a ComposeMode<'a, HelmReleaseProxy>,
    ) -> BoxFuture<'a, Result<Composed<HelmReleaseProxy>, ReconcileError>> {
        self.releases(placement, clusters, existing).boxed()
    }

    fn status(
        &self,
        _: &HelmChartProxy,
        _: &ClusterMap<Arc<DynamicObject>>,
        _: &ClusterMap<Arc<HelmReleaseProxy>>,
        status: PlacementStatus,
    ) -> PlacementStatus {
        status
    }

    fn forget(&self, _: &HelmChartProxy) {}

    fn requeue_after(&self, _: &HelmChartProxy) -> Option<Duration> {
        None
    }

    fn is_needed(&self, _: &HelmReleaseProxy) -> Option<String> {
        None
    }
}

impl Composer {
    async fn releases(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
    ) -> Result<Composed<HelmReleaseProxy>, ReconcileError> {
        let template = &placement.spec.values_template;
        let uid = placement.uid().unwrap_or_default();
        let (mut composed, mut inputs, mut digests) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (done, (key, cluster)) in clusters.iter().enumerate() {
            take_turns(done).await;
            let there = existing.get(key).map(AsRef::as_ref);
            match self.known(&uid, template, key, cluster, there).await {
                Ok(Known::Plain) => {
                    composed.insert(
                        key.clone(),
                        Ok(release_object(placement, key, template.clone(), there).into()),
                    );
                }
                Ok(Known::Current(values, digest)) => {
                    let object = rendered_release_object(placement, key, values, &digest, there);
                    composed.insert(key.clone(), Ok(object.into()));
                }
                Ok(Known::Outdated(data, digest)) => {
                    inputs.push(TemplateInput { cluster: key.clone(), data, digest: digest.clone() });
                    digests.insert(key.clone(), digest);
                }
                Err(error) => {
                    composed.insert(key.clone(), Err(error));
                }
            }
        }
        let mut evaluated = self.templates.evaluate(&uid, template, inputs).await?;
        for (key, digest) in digests {
            let there = existing.get(&key).map(AsRef::as_ref);
            let values = evaluated.remove(&key).unwrap_or(Err(ComposeError::NoValues));
            let object =
                values.map(|values| rendered_release_object(placement, &key, values, &digest, there).into());
            composed.insert(key, object);
        }
        self.set_versions(placement, clusters, existing, &mut composed).await;
        Ok(composed)
    }

    /// Sets the versions of release objects that follow the Kubernetes version of their cluster.
    async fn set_versions(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
        composed: &mut Composed<HelmReleaseProxy>,
    ) {
        let Some(versions) = placement.kubernetes_versions() else { return };
        for (key, object) in composed {
            let (Ok(release), Some(cluster)) = (&mut *object, clusters.get(key)) else { continue };
            let there = existing.get(key).map(|there| there.spec.version.as_str());
            let version = match &versions {
                Ok(versions) => self.version(versions, key, cluster, there).await,
                Err(error) => Err(error.clone().into()),
            };
            match version {
                Ok((version, kubernetes)) => {
                    release.object.spec.version = version;
                    release.kubernetes = Some(kubernetes);
                }
                Err(error) => *object = Err(error),
            }
        }
    }

    /// Returns the version for a cluster, and the Kubernetes versions that it was chosen for.
    async fn version(
        &self,
        versions: &KubernetesVersions,
        key: &ClusterKey,
        cluster: &DynamicObject,
        existing: Option<&str>,
    ) -> Result<(String, String), ComposeError> {
        let kubernetes = self.resolver.kubernetes(key, cluster).await?;
        Ok((versions.version(&kubernetes, existing)?.to_owned(), kubernetes.minors()))
    }

    async fn known(
        &self,
        uid: &str,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
        there: Option<&HelmReleaseProxy>,
    ) -> Result<Known, ComposeError> {
        if !template.contains("{{") {
            return Ok(Known::Plain);
        }
        let (data, digest) = self.templates.data(template, key, cluster).await?;
        let last = there.and_then(|there| there.annotations().get(RENDERED_FROM_ANNOTATION));
        match (rendering(template, &digest, last.map(String::as_str)), there) {
            (Rendering::Current, Some(there)) => Ok(Known::Current(there.spec.values.clone(), digest)),
            _ => Ok(match self.templates.cached(uid, key, &digest) {
                Some(values) => Known::Current(values, digest),
                None => Known::Outdated(data, digest),
            }),
        }
    }
}

/// The values of a cluster before any template is evaluated.
enum Known {
    /// The text contains no template.
    Plain,
    /// The values were rendered from the same template and data.
    Current(String, Digest),
    Outdated(Value, Digest),
}
