//! Value templates: evaluated for many clusters in as few calls of the template service as possible.

mod evaluations;

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::capi::{ClusterView, ContractReference};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    placement::{TemplateObjects, referenced_objects, render_inputs},
};
use chandler_tool::TemplateService;
use kube::api::DynamicObject;
use serde_json::Value;

pub use self::evaluations::Evaluations;
use crate::{
    ReconcileError, clusters::as_json, metrics::Metrics, placement::ComposeError, references::References,
    tasks::take_turns,
};

/// Evaluates templates over clusters.
#[derive(Clone)]
pub struct Templates {
    pub references: References,
    pub service: TemplateService,
    pub metrics: Metrics,
    pub evaluations: Evaluations,
}

/// The data for which a template has to be evaluated.
pub struct TemplateInput {
    pub cluster: ClusterKey,
    pub data: Value,
    /// Of template and data.
    pub digest: Digest,
}

impl Templates {
    /// Evaluates a template for each cluster. Results are cached under `placement`, and reused if the input is the same.
    pub async fn evaluate_all(
        &self,
        placement: &str,
        template: &str,
        clusters: &ClusterMap<Arc<DynamicObject>>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        if !template.contains("{{") {
            return Ok(clusters.keys().map(|key| (key.clone(), Ok(template.to_owned()))).collect());
        }
        let (mut results, mut needed) = (BTreeMap::new(), Vec::new());
        for (done, (key, cluster)) in clusters.iter().enumerate() {
            take_turns(done).await;
            match self.data(template, key, cluster).await {
                Ok((data, digest)) => {
                    if let Some(text) = self.cached(placement, key, &digest) {
                        results.insert(key.clone(), Ok(text));
                    } else {
                        needed.push(TemplateInput { cluster: key.clone(), data, digest });
                    }
                }
                Err(error) => {
                    results.insert(key.clone(), Err(error));
                }
            }
        }
        results.extend(self.evaluate(placement, template, needed).await?);
        Ok(results)
    }

    /// Returns the data that a template reads, and the digest of both.
    pub async fn data(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<(Value, Digest), ComposeError> {
        let view = ClusterView::of(&cluster.data).unwrap_or_default();
        let (control_plane, infra_cluster) = referenced_objects(template);
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

    /// Returns the cached result of a placement's template for a cluster.
    pub fn cached(&self, placement: &str, cluster: &ClusterKey, input: &Digest) -> Option<String> {
        self.evaluations.get(placement, cluster, input)
    }

    /// Evaluates the template of a placement for many clusters. A failure concerns its own cluster only.
    pub async fn evaluate(
        &self,
        placement: &str,
        template: &str,
        inputs: Vec<TemplateInput>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        if inputs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let requests =
            inputs.iter().map(|input| (input.cluster.to_string(), input.data.to_string().into_bytes()));
        self.metrics.tool_call("render");
        let outputs =
            self.service.render(template, requests.collect()).await.map_err(ReconcileError::Render)?;
        let mut results = BTreeMap::new();
        for (input, output) in inputs.into_iter().zip(outputs) {
            if let Ok(text) = &output {
                self.evaluations.insert(placement, &input.cluster, input.digest, text.clone());
            }
            results.insert(input.cluster, output.map_err(|failure| ComposeError::Template(failure.message)));
        }
        Ok(results)
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
