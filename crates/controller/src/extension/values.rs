//! Composes the values of an instance's releases: merges layers of parameters, validates and renders them, and stores
//! them in the release object or in a Secret.

pub mod schema_check;

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{AddonRelease, ExtensionInstance, PackageSource, PinnedPackage, ValuesSecret};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    parameters::{Parameters, Rendered, Schema, SecretValues, may_be_secret, merge, render, summarize},
    placement::addon_release_name,
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use self::schema_check::SchemaCheck;
use crate::{
    ReconcileError,
    parameters::ParameterSources,
    placement::{ComposeError, WriteValues},
    tasks::take_turns,
    templates::Templates,
    values::{ClusterParameters, LayerBuilder, ToStore, ValuesSecrets, values_data},
};

type ValuesResult = Result<ComposedValues, ComposeError>;

/// Values as text, or the Secret that contains them.
pub struct ComposedValues {
    pub values: Option<String>,
    pub values_secret: Option<ValuesSecret>,
    /// Digest of the layers that do not depend on the cluster and are part of neither the instance nor the version.
    pub parameters: String,
    /// Digest of the defaults of the version. Empty if there are none.
    pub defaults: String,
    /// The values that the Secret does not have, because of [`WriteValues`].
    pub unwritten: Option<Rendered>,
    /// The values that come from Secrets.
    pub secrets: SecretValues,
}

/// The parts of the chosen version that determine values.
#[derive(Clone, Default)]
pub struct Layers {
    pub defaults: Parameters,
    /// Defaults as YAML with templates.
    pub defaults_template: Option<String>,
    /// `None` means that the schema of the package applies, if it has one.
    pub schema: Option<Parameters>,
    pub source: PackageSource,
    /// Set if the package is made of a folder of a Source, except for a kustomization, which is made of the values too.
    pub pinned: Option<PinnedPackage>,
}

impl Layers {
    fn is_package_of(&self, release: &AddonRelease) -> bool {
        release.spec.source == self.source && release.spec.pinned == self.pinned
    }
}

/// Composes values.
pub struct Values {
    pub secrets: ValuesSecrets,
    pub templates: Templates,
    pub sources: ParameterSources,
    pub schema_check: SchemaCheck,
}

impl Values {
    /// Composes the values of an instance for each cluster.
    pub async fn of(
        &self,
        instance: &ExtensionInstance,
        clusters: ClusterMap<(Arc<DynamicObject>, Layers)>,
        existing: &ClusterMap<Arc<AddonRelease>>,
        write: WriteValues,
    ) -> Result<ClusterMap<ValuesResult>, ReconcileError> {
        let namespace = instance.namespace().unwrap_or_default();
        let is_secret = may_be_secret(&instance.spec.parameters_from);
        let mut parameters = self.parameters(instance, &clusters).await?;
        let mut results = BTreeMap::new();
        for (done, (key, (_, layers))) in clusters.into_iter().enumerate() {
            take_turns(done).await;
            let Some(ClusterParameters { merged, shared, secrets, .. }) = parameters.remove(&key) else {
                continue;
            };
            let current = existing.get(&key);
            let values = match merged.and_then(|merged| with_own(instance, &layers, merged)) {
                Ok(parameters) => self.validated(&namespace, &layers, &parameters, current).await,
                Err(error) => Err(error),
            };
            let values = match values {
                Ok(values) => {
                    let to_store = ToStore {
                        values,
                        is_secret,
                        release: &addon_release_name(instance, &key.name),
                        existing: current.map(AsRef::as_ref),
                        has_same_package: current.is_some_and(|current| layers.is_package_of(current)),
                        write,
                    };
                    let (parameters, defaults) = (digest_of(&shared), defaults_digest(&layers));
                    self.secrets.store(instance, to_store).await.map(|(stored, unwritten)| {
                        let (values, values_secret) = stored.unzip();
                        ComposedValues { values, values_secret, parameters, defaults, unwritten, secrets }
                    })
                }
                Err(error) => Err(error),
            };
            results.insert(key, values);
        }
        Ok(results)
    }

    /// Returns the parameters of each cluster below `parameters` of the instance.
    async fn parameters(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<(Arc<DynamicObject>, Layers)>,
    ) -> Result<ClusterMap<ClusterParameters>, ReconcileError> {
        let (spec, namespace) = (&instance.spec, instance.namespace().unwrap_or_default());
        let builder = LayerBuilder {
            templates: &self.templates,
            sources: &self.sources,
            namespace: &namespace,
            service_account: spec.service_account_name.as_deref(),
            uid: &instance.uid().unwrap_or_default(),
        };
        let new = |(cluster, layers): &(Arc<DynamicObject>, Layers)| {
            ClusterParameters::new(cluster.clone(), layers.defaults.clone())
        };
        let mut all = clusters.iter().map(|(key, one)| (key.clone(), new(one))).collect();
        // Defaults can be derived from what the instance sets.
        let defaults = |key: &ClusterKey| {
            let (_, layers) = clusters.get(key)?;
            let template = layers.defaults_template.clone()?;
            let own = spec.parameters.clone().unwrap_or_default();
            Some((template, Some(values_data(merge([layers.defaults.clone(), own])))))
        };
        builder.add_template("parameters.defaultsTemplate", &mut all, defaults).await?;
        for (number, entry) in spec.parameters_from.iter().enumerate() {
            builder.add_source(number, entry, &mut all).await?;
        }
        let template = |_: &ClusterKey| Some((spec.parameters_template.clone()?, None));
        builder.add_template("spec.parametersTemplate", &mut all, template).await?;
        Ok(all)
    }

    /// Renders the values and validates them against the schema of the package, unless the release object already has
    /// them.
    async fn validated(
        &self,
        namespace: &str,
        layers: &Layers,
        parameters: &Parameters,
        existing: Option<&Arc<AddonRelease>>,
    ) -> Result<Rendered, ComposeError> {
        let values = render(parameters);
        let unchanged =
            existing.is_some_and(|existing| layers.is_package_of(existing) && has_values(existing, &values));
        if unchanged || layers.schema.is_some() {
            return Ok(values);
        }
        let problem = self.schema_check.validate(namespace, layers, parameters, &values).await;
        problem.map_or(Ok(values), |problem| Err(ComposeError::Parameters(problem)))
    }
}

fn digest_of(parameters: &impl serde::Serialize) -> String {
    Digest::of(serde_json::to_string(parameters).unwrap_or_default()).to_string()
}

fn defaults_digest(Layers { defaults, defaults_template, .. }: &Layers) -> String {
    match defaults_template {
        None if defaults.is_empty() => String::new(),
        None => digest_of(defaults),
        Some(template) => digest_of(&(defaults, template)),
    }
}

/// Merges `parameters` of the instance over the other layers, and validates the result against the schema of the version.
fn with_own(
    instance: &ExtensionInstance,
    layers: &Layers,
    merged: Parameters,
) -> Result<Parameters, ComposeError> {
    let parameters = merge([merged, instance.spec.parameters.clone().unwrap_or_default()]);
    if let Some(schema) = &layers.schema {
        let schema = Schema::new(&Value::Object(schema.clone()))?;
        let violations = schema.violations(&parameters)?;
        if let Some(failure) = summarize(&violations) {
            return Err(failure.into());
        }
    }
    Ok(parameters)
}

/// Returns whether a release object has these values.
fn has_values(release: &AddonRelease, values: &Rendered) -> bool {
    match &release.spec.values_secret {
        Some(secret) => secret.digest == values.digest.to_string(),
        None => release.spec.values.as_deref().unwrap_or_default() == values.text,
    }
}
