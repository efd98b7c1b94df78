//! HelmChartProxy: the values of its releases are its template, evaluated for each cluster.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    status::PlacementStatus,
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    placement::{RENDERED_FROM_ANNOTATION, Rendering, release_object, rendering},
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::{ComposeServices, ManagedKind};
use crate::{
    ReconcileError,
    placement::{Compose, ComposeError, Composed},
    tasks::take_turns,
    templates::{TemplateInput, Templates},
};

impl ManagedKind for HelmChartProxy {
    fn composer(services: &ComposeServices<'_>) -> Box<dyn Compose<Self>> {
        Box::new(Composer { templates: services.templates.clone() })
    }
}

struct Composer {
    templates: Templates,
}

impl Compose<HelmChartProxy> for Composer {
    fn compose<'a>(
        &'a self,
        placement: &'a HelmChartProxy,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<HelmReleaseProxy>>,
    ) -> BoxFuture<'a, Result<Composed<HelmReleaseProxy>, ReconcileError>> {
        self.releases(placement, clusters, existing).boxed()
    }

    fn status(
        &self,
        _: &HelmChartProxy,
        _: &ClusterMap<Arc<DynamicObject>>,
        status: PlacementStatus,
    ) -> PlacementStatus {
        status
    }

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
        let (mut composed, mut inputs, mut digests) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (done, (key, cluster)) in clusters.iter().enumerate() {
            take_turns(done).await;
            let there = existing.get(key).map(AsRef::as_ref);
            match self.known(template, key, cluster, there).await {
                Ok(Known::Plain) => {
                    composed.insert(key.clone(), Ok(release_object(placement, key, template.clone(), there)));
                }
                Ok(Known::Current(values, digest)) => {
                    let object = release_object(placement, key, values, there);
                    composed.insert(key.clone(), Ok(rendered_from(object, &digest)));
                }
                Ok(Known::Outdated(data, digest)) => {
                    inputs.push(TemplateInput { cluster: key.clone(), data });
                    digests.insert(key.clone(), digest);
                }
                Err(error) => {
                    composed.insert(key.clone(), Err(error));
                }
            }
        }
        for (key, values) in self.templates.evaluate(template, inputs).await? {
            let there = existing.get(&key).map(AsRef::as_ref);
            let object = values.map(|values| release_object(placement, &key, values, there));
            let object = match digests.get(&key) {
                Some(digest) => object.map(|object| rendered_from(object, digest)),
                None => object,
            };
            composed.insert(key, object);
        }
        Ok(composed)
    }

    async fn known(
        &self,
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
            _ => Ok(Known::Outdated(data, digest)),
        }
    }
}

/// The values of a cluster before any template is evaluated.
enum Known {
    /// The text contains no template.
    Plain,
    /// The release object was rendered from the same template and data.
    Current(String, Digest),
    Outdated(Value, Digest),
}

fn rendered_from(mut object: HelmReleaseProxy, digest: &Digest) -> HelmReleaseProxy {
    object.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), digest.to_string());
    object
}
