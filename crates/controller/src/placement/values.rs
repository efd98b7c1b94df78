//! The values of each selected cluster: all templates that have to be evaluated, in one call.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{
    identity::ClusterKey,
    placement::{PlacementFace, RENDERED_FROM_ANNOTATION, Rendering, render_inputs, rendering},
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
            let there = existing.get(key);
            let (data, digest) = render_inputs(template, &as_json(cluster));
            let rendered_from =
                there.and_then(|there| there.annotations().get(RENDERED_FROM_ANNOTATION)).map(String::as_str);
            let known = there.and_then(|there| there.desired().ok()).map(|desired| desired.values);
            match (rendering(template, &digest, rendered_from), known) {
                (Rendering::Plain, _) => {
                    values.insert(
                        key.clone(),
                        ClusterValues { text: Ok(template.to_owned()), rendered_from: None },
                    );
                }
                (Rendering::Current, Some(text)) => {
                    let rendered_from = Some(digest.to_string());
                    values.insert(key.clone(), ClusterValues { text: Ok(text), rendered_from });
                }
                _ => needed.push((key.clone(), data, digest)),
            }
        }
        if needed.is_empty() {
            return Ok(values);
        }
        let inputs =
            needed.iter().map(|(key, data, _)| (key.to_string(), data.to_string().into_bytes())).collect();
        self.metrics.tool_call("render");
        let outputs = self.tool.render(template, inputs).await.map_err(Error::Render)?;
        for ((key, _, digest), output) in needed.into_iter().zip(outputs) {
            let text = output.map_err(|failure| failure.message);
            values.insert(key, ClusterValues { text, rendered_from: Some(digest.to_string()) });
        }
        Ok(values)
    }
}

fn as_json(cluster: &DynamicObject) -> Value {
    serde_json::to_value(cluster).unwrap_or_default()
}
