//! Value templates: evaluated for many clusters in as few calls of the template service as possible.

mod evaluations;
mod quota;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use chandler_api::capi::{ClusterView, ContractReference};
use chandler_core::{
    digest::Digest,
    fleet::class_of,
    identity::{ClusterKey, ClusterMap},
    parameters::{Parameters, json_size},
    placement::{TemplateObjects, refers_to, render_inputs},
};
use chandler_tool::TemplateService;
use kube::api::DynamicObject;
use serde_json::Value;

use self::quota::next_inputs;
pub use self::{evaluations::Evaluations, quota::TemplateQuota};
use crate::{
    ReconcileError, clusters::as_json, extension::kubernetes_of, metrics::Metrics, placement::ComposeError,
    queue::outside_of_limit, references::References, tasks::take_turns,
};

/// Evaluates templates over clusters.
#[derive(Clone)]
pub struct Templates {
    pub references: References,
    pub service: TemplateService,
    pub metrics: Metrics,
    pub evaluations: Evaluations,
    pub quota: TemplateQuota,
}

/// The data for which a template has to be evaluated.
pub struct TemplateInput {
    pub cluster: ClusterKey,
    pub data: Value,
    /// Of template and data.
    pub digest: Digest,
}

/// A template, and the cluster for which it is evaluated.
pub struct ClusterTemplate {
    pub template: String,
    pub cluster: Arc<DynamicObject>,
    /// Data that is not about the cluster, by name.
    pub other: Parameters,
    /// What was read from objects, and its name. Clusters share it.
    pub content: Option<(&'static str, Arc<Value>)>,
}

/// The size of the data that is collected before templates are evaluated. All data of a large fleet would take too much memory.
const BATCH: usize = 8 << 20;

impl Templates {
    /// Evaluates a template for each cluster, those with the same one together. Results are cached under `placement`, and
    /// reused if the input is the same.
    pub async fn evaluate_each(
        &self,
        placement: &str,
        templates: ClusterMap<ClusterTemplate>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        let mut results = BTreeMap::new();
        let mut needed: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut collected = 0;
        for (done, (key, one)) in templates.into_iter().enumerate() {
            take_turns(done).await;
            if !one.template.contains("{{") {
                results.insert(key, Ok(one.template));
                continue;
            }
            let content = one.content.as_ref().map(|(name, content)| (*name, &**content));
            match self.data_with(&one.template, &key, &one.cluster, (&one.other, content)).await {
                Ok((data, digest)) => {
                    if let Some(text) = self.cached(placement, &key, &digest) {
                        results.insert(key, Ok(text));
                        continue;
                    }
                    collected += json_size(&data);
                    let input = TemplateInput { cluster: key, data, digest };
                    needed.entry(one.template).or_default().push(input);
                    if collected > BATCH {
                        collected = 0;
                        for (template, inputs) in std::mem::take(&mut needed) {
                            results.extend(self.evaluate(placement, &template, inputs).await?);
                        }
                    }
                }
                Err(error) => {
                    results.insert(key, Err(error));
                }
            }
        }
        for (template, inputs) in needed {
            results.extend(self.evaluate(placement, &template, inputs).await?);
        }
        Ok(results)
    }

    /// Returns the data that a template reads about a cluster, and the digest of both.
    pub async fn data(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<(Value, Digest), ComposeError> {
        self.data_with(template, key, cluster, (&Parameters::new(), None)).await
    }

    /// Returns the data that a template reads, also data that is not about the cluster, and the digest of both.
    async fn data_with(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
        (other, content): (&Parameters, Option<(&'static str, &Value)>),
    ) -> Result<(Value, Digest), ComposeError> {
        let (view, object) = (ClusterView::of(&cluster.data).unwrap_or_default(), as_json(cluster));
        let wanted = |name: &str| refers_to(template, name);
        let cluster_class = match class_of(&object, &view).filter(|_| wanted("ClusterClass")) {
            Some(class) => Some(as_json(&*self.references.class(&class).await?)),
            None => None,
        };
        let spec = view.spec;
        let control_plane =
            self.referenced(key, wanted("ControlPlane"), "controlPlaneRef", spec.control_plane_ref).await?;
        let infra_cluster = self
            .referenced(key, wanted("InfraCluster"), "infrastructureRef", spec.infrastructure_ref)
            .await?;
        let kubernetes_version = if wanted("KubernetesVersion") {
            let kubernetes = kubernetes_of(&self.references, key, cluster).await?;
            Some(format!("v{}", kubernetes.current))
        } else {
            None
        };
        let objects = TemplateObjects {
            cluster: &object,
            control_plane: control_plane.as_ref(),
            infra_cluster: infra_cluster.as_ref(),
            cluster_class: cluster_class.as_ref(),
            kubernetes_version: kubernetes_version.as_deref(),
            other,
            content,
        };
        Ok(render_inputs(template, &objects))
    }

    /// Returns the cached result of a placement's template for a cluster.
    pub fn cached(&self, placement: &str, cluster: &ClusterKey, input: &Digest) -> Option<String> {
        self.evaluations.get(placement, cluster, input)
    }

    /// Evaluates the template of a placement for many clusters. A failure concerns its own cluster only, and so does the end of
    /// the time that the namespace may use.
    pub async fn evaluate(
        &self,
        placement: &str,
        template: &str,
        mut inputs: Vec<TemplateInput>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        let (mut results, mut last) = (BTreeMap::new(), None);
        while let Some(first) = inputs.first() {
            let namespace = first.cluster.namespace.clone();
            if self.quota.is_used_up(&namespace) {
                let refused =
                    inputs.into_iter().map(|input| (input.cluster, Err(self.quota.refusal(&namespace))));
                results.extend(refused);
                break;
            }
            let rest = inputs.split_off(next_inputs(last).min(inputs.len()));
            let some = std::mem::replace(&mut inputs, rest);
            let count = some.len();
            let evaluation = async {
                let _slot = self.quota.slot(&namespace).await;
                let started = Instant::now();
                (self.evaluate_some(placement, template, some).await, started.elapsed())
            };
            let (evaluated, time) = outside_of_limit(evaluation).await;
            self.quota.charge(&namespace, time);
            results.extend(evaluated?);
            last = Some((count, time));
        }
        Ok(results)
    }

    /// Evaluates a template in one call of the service.
    async fn evaluate_some(
        &self,
        placement: &str,
        template: &str,
        inputs: Vec<TemplateInput>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        let (mut requests, mut clusters) = (Vec::new(), Vec::new());
        for TemplateInput { cluster, data, digest } in inputs {
            requests.push((cluster.to_string(), data.to_string().into_bytes()));
            clusters.push((cluster, digest));
        }
        self.metrics.tool_call("render");
        let outputs = self.service.render(template, requests).await.map_err(ReconcileError::Render)?;
        let mut results = BTreeMap::new();
        for ((cluster, digest), output) in clusters.into_iter().zip(outputs) {
            if let Ok(text) = &output {
                self.evaluations.insert(placement, &cluster, digest, text.clone());
            }
            results.insert(cluster, output.map_err(ComposeError::from));
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
