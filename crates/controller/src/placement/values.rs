//! The values of each selected cluster: all templates that have to be evaluated, in one call.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::capi::{ClusterView, ContractReference};
use chandler_core::{
    digest::Digest,
    identity::ClusterKey,
    placement::{
        PlacementFace, RENDERED_FROM_ANNOTATION, Rendering, TemplateObjects, looks_at, render_inputs,
        rendering,
    },
    release::ReleaseFace as _,
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::PlacementContext;
use crate::Error;

/// The values of one cluster.
#[derive(Clone, Debug)]
pub struct ClusterValues {
    /// Or why there are none.
    pub text: Result<String, String>,
    /// Digest of what they were rendered from. None: the text holds no template.
    pub rendered_from: Option<String>,
}

/// A template that has to be evaluated for a cluster.
struct Needed {
    cluster: ClusterKey,
    data: Value,
    digest: Digest,
}

/// What is known of a cluster's values before any template is evaluated.
enum Known {
    Values(ClusterValues),
    Needed(Needed),
}

impl<P: PlacementFace> PlacementContext<P> {
    /// The values of each cluster. A template that fails for one cluster fails for that one alone.
    pub(super) async fn values(
        &self,
        placement: &P,
        clusters: &BTreeMap<ClusterKey, Arc<DynamicObject>>,
        existing: &BTreeMap<ClusterKey, Arc<P::Release>>,
    ) -> Result<BTreeMap<ClusterKey, ClusterValues>, Error> {
        let template = placement.values_template();
        let mut values = BTreeMap::new();
        let mut needed = Vec::new();
        for (key, cluster) in clusters {
            match self.known(template, key, cluster, existing.get(key).map(AsRef::as_ref)).await {
                Known::Values(known) => {
                    values.insert(key.clone(), known);
                }
                Known::Needed(template) => needed.push(template),
            }
        }
        self.evaluate(template, needed, &mut values).await?;
        Ok(values)
    }

    async fn known(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
        there: Option<&P::Release>,
    ) -> Known {
        if !template.contains("{{") {
            return Known::Values(ClusterValues { text: Ok(template.to_owned()), rendered_from: None });
        }
        let (data, digest) = match self.data(template, key, cluster).await {
            Ok(data) => data,
            Err(message) => return Known::Values(ClusterValues { text: Err(message), rendered_from: None }),
        };
        let rendered_from =
            there.and_then(|there| there.annotations().get(RENDERED_FROM_ANNOTATION)).map(String::as_str);
        let last = there.and_then(|there| there.desired().ok()).map(|desired| desired.values);
        match (rendering(template, &digest, rendered_from), last) {
            (Rendering::Current, Some(text)) => {
                Known::Values(ClusterValues { text: Ok(text), rendered_from: Some(digest.to_string()) })
            }
            _ => Known::Needed(Needed { cluster: key.clone(), data, digest }),
        }
    }

    /// What the template looks at, or why it cannot be had.
    async fn data(
        &self,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<(Value, Digest), String> {
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

    async fn referenced(
        &self,
        cluster: &ClusterKey,
        wanted: bool,
        field: &str,
        to: Option<ContractReference>,
    ) -> Result<Option<Value>, String> {
        if !wanted {
            return Ok(None);
        }
        let to =
            to.ok_or_else(|| format!("the template looks at the Cluster's {field}, which is not set"))?;
        let object = self.references.get(&cluster.namespace, &to).await.map_err(|error| error.to_string())?;
        Ok(Some(as_json(&object)))
    }

    async fn evaluate(
        &self,
        template: &str,
        needed: Vec<Needed>,
        values: &mut BTreeMap<ClusterKey, ClusterValues>,
    ) -> Result<(), Error> {
        if needed.is_empty() {
            return Ok(());
        }
        let inputs =
            needed.iter().map(|needed| (needed.cluster.to_string(), needed.data.to_string().into_bytes()));
        self.metrics.tool_call("render");
        let outputs = self.tool.render(template, inputs.collect()).await.map_err(Error::Render)?;
        for (Needed { cluster, digest, .. }, output) in needed.into_iter().zip(outputs) {
            let text = output.map_err(|failure| failure.message);
            values.insert(cluster, ClusterValues { text, rendered_from: Some(digest.to_string()) });
        }
        Ok(())
    }
}

fn as_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
