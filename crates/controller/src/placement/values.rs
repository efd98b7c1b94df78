//! Value templates: all that have to be evaluated, in one call.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    capi::{ClusterView, ContractReference},
    status::PlacementStatus,
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    placement::{
        RENDERED_FROM_ANNOTATION, Rendering, TemplateObjects, looks_at, release_object, render_inputs,
        rendering,
    },
};
use chandler_tool::PackageTool;
use futures::{FutureExt as _, future::BoxFuture};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::{Compose, ComposeError, Composed};
use crate::{ReconcileError, clusters::as_json, metrics::Metrics, references::References, tasks::take_turns};

/// Evaluates templates over clusters.
#[derive(Clone)]
pub struct Templates {
    pub references: References,
    pub tool: PackageTool,
    pub metrics: Metrics,
}

/// A template that has to be evaluated for a cluster.
pub struct Needed {
    pub cluster: ClusterKey,
    pub data: Value,
}

impl Templates {
    /// What a template looks at and the digest of both, or why it cannot be had.
    pub async fn data(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<(Value, Digest), ComposeError> {
        let view = ClusterView::of(&cluster.data).unwrap_or_default();
        let (control_plane, infra_cluster) = looks_at(template);
        let control_plane =
            self.referenced(key, control_plane, "controlPlaneRef", view.spec.control_plane_ref).await?;
        let infra_cluster =
            self.referenced(key, infra_cluster, "infrastructureRef", view.spec.infrastructure_ref).await?;
        let objects = TemplateObjects {
            cluster: &as_json(cluster),
            control_plane: control_plane.as_ref(),
            infra_cluster: infra_cluster.as_ref(),
        };
        Ok(render_inputs(template, &objects))
    }

    /// Evaluates a template for many clusters; each fails for itself.
    pub async fn evaluate(
        &self,
        template: &str,
        needed: Vec<Needed>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        if needed.is_empty() {
            return Ok(BTreeMap::new());
        }
        let inputs =
            needed.iter().map(|needed| (needed.cluster.to_string(), needed.data.to_string().into_bytes()));
        self.metrics.tool_call("render");
        let outputs = self.tool.render(template, inputs.collect()).await.map_err(ReconcileError::Render)?;
        let texts = outputs
            .into_iter()
            .map(|output| output.map_err(|failure| ComposeError::Template(failure.message)));
        Ok(needed.into_iter().map(|needed| needed.cluster).zip(texts).collect())
    }

    async fn referenced(
        &self,
        cluster: &ClusterKey,
        wanted: bool,
        field: &'static str,
        to: Option<ContractReference>,
    ) -> Result<Option<Value>, ComposeError> {
        if !wanted {
            return Ok(None);
        }
        let to = to.ok_or(ComposeError::ReferenceNotSet { field })?;
        let object = self.references.get(&cluster.namespace, &to).await?;
        Ok(Some(as_json(&object)))
    }
}

/// The values of a HelmChartProxy's release are its template, evaluated.
impl Compose<HelmChartProxy> for Templates {
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
        said: PlacementStatus,
    ) -> PlacementStatus {
        said
    }

    fn look_again(&self, _: &HelmChartProxy) -> Option<Duration> {
        None
    }

    fn is_needed(&self, _: &HelmReleaseProxy) -> Option<String> {
        None
    }
}

impl Templates {
    async fn releases(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
    ) -> Result<Composed<HelmReleaseProxy>, ReconcileError> {
        let template = &placement.spec.values_template;
        let (mut composed, mut needed, mut digests) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
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
                Ok(Known::Needed(data, digest)) => {
                    needed.push(Needed { cluster: key.clone(), data });
                    digests.insert(key.clone(), digest);
                }
                Err(error) => {
                    composed.insert(key.clone(), Err(error));
                }
            }
        }
        for (key, values) in self.evaluate(template, needed).await? {
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
        let (data, digest) = self.data(template, key, cluster).await?;
        let last = there.and_then(|there| there.annotations().get(RENDERED_FROM_ANNOTATION));
        match (rendering(template, &digest, last.map(String::as_str)), there) {
            (Rendering::Current, Some(there)) => Ok(Known::Current(there.spec.values.clone(), digest)),
            _ => Ok(Known::Needed(data, digest)),
        }
    }
}

/// What is known of a cluster's values before any template is evaluated.
enum Known {
    /// The text holds no template.
    Plain,
    /// What is there was rendered from the same.
    Current(String, Digest),
    Needed(Value, Digest),
}

fn rendered_from(mut object: HelmReleaseProxy, digest: &Digest) -> HelmReleaseProxy {
    object.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), digest.to_string());
    object
}
