//! Release objects of HelmChartProxies whose policy names sources of values.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{ParametersFrom, ValuesFrom},
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    naming,
    parameters::{Parameters, may_be_secret, render},
    placement::{composed_release_object, has_package_of},
};
use kube::{ResourceExt, api::DynamicObject};

use crate::{
    ReconcileError,
    parameters::ParameterSources,
    placement::{ComposeError, Composed, ComposedRelease, WriteValues},
    tasks::take_turns,
    templates::Templates,
    values::{ClusterParameters, LayerBuilder, ToStore, ValuesSecrets},
};

/// Composes values from `valuesFrom` of a policy and from the template of a HelmChartProxy, which overrides them.
pub struct PolicyValues {
    pub templates: Templates,
    pub sources: ParameterSources,
    pub secrets: ValuesSecrets,
}

impl PolicyValues {
    /// Returns the release object of each cluster.
    pub async fn releases(
        &self,
        placement: &HelmChartProxy,
        values_from: Vec<ValuesFrom>,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
        write: WriteValues,
    ) -> Result<Composed<HelmReleaseProxy>, ReconcileError> {
        let from: Vec<ParametersFrom> = values_from.into_iter().map(Into::into).collect();
        let is_secret = may_be_secret(&from);
        let mut composed = BTreeMap::new();
        for (done, (key, parameters)) in
            self.values(placement, &from, clusters).await?.into_iter().enumerate()
        {
            take_turns(done).await;
            let existing = existing.get(&key).map(AsRef::as_ref);
            let release =
                self.release(placement, &key, (&from, parameters), existing, (is_secret, write)).await;
            composed.insert(key, release);
        }
        Ok(composed)
    }

    async fn values(
        &self,
        placement: &HelmChartProxy,
        from: &[ParametersFrom],
        clusters: &ClusterMap<Arc<DynamicObject>>,
    ) -> Result<ClusterMap<ClusterParameters>, ReconcileError> {
        let builder = LayerBuilder {
            templates: &self.templates,
            sources: &self.sources,
            namespace: &placement.namespace().unwrap_or_default(),
            service_account: None,
            uid: &placement.uid().unwrap_or_default(),
        };
        let new = |cluster: &Arc<DynamicObject>| ClusterParameters::new(cluster.clone(), Parameters::new());
        let mut all = clusters.iter().map(|(key, cluster)| (key.clone(), new(cluster))).collect();
        for (number, entry) in from.iter().enumerate() {
            builder.add_source(number, entry, &mut all).await?;
        }
        let template = |_: &ClusterKey| Some((placement.spec.values_template.clone(), None));
        builder.add_template("spec.valuesTemplate", &mut all, template).await?;
        Ok(all)
    }

    async fn release(
        &self,
        placement: &HelmChartProxy,
        key: &ClusterKey,
        (from, parameters): (&[ParametersFrom], ClusterParameters),
        existing: Option<&HelmReleaseProxy>,
        (is_secret, write): (bool, WriteValues),
    ) -> Result<ComposedRelease<HelmReleaseProxy>, ComposeError> {
        let values = render(&parameters.merged?);
        let release = existing
            .map_or_else(|| naming::release_object(&placement.name_any(), &key.name), ResourceExt::name_any);
        let has_same_package = existing.is_some_and(|existing| has_package_of(placement, existing));
        let to_store = ToStore { values, is_secret, release: &release, existing, has_same_package, write };
        let (stored, unwritten_values) = self.secrets.store(placement, to_store).await?;
        // The policy is no part of what the spec of the placement shares.
        let shared = serde_json::to_string(&(from, &parameters.shared)).unwrap_or_default();
        Ok(ComposedRelease {
            object: composed_release_object(placement, key, stored, existing),
            parameters: Digest::of(shared).to_string(),
            defaults: String::new(),
            kubernetes: None,
            refused: None,
            unwritten_values,
            secrets: parameters.secrets,
        })
    }
}
