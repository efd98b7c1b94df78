//! Composes the values of an instance's releases: merges layers of parameters, validates and renders them, and stores
//! them in the release object or in a Secret.

pub mod schema_check;

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::{
    FIELD_MANAGER,
    extensions::{AddonRelease, ExtensionInstance, PackageSource, PinnedPackage, ValuesSecret},
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    parameters::{Parameters, Rendered, Schema, from_yaml, merge, render, summarize},
    placement::{addon_release_name, must_write_values},
    release::VALUES_KEY,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use self::schema_check::SchemaCheck;
use crate::{
    ReconcileError,
    parameters::{ParameterSources, Read},
    placement::ComposeError,
    tasks::take_turns,
    templates::Templates,
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
    /// Whether the Secret has other values, because the release object may have to wait for these.
    pub is_unwritten: bool,
}

/// The parts of the chosen version that determine values.
#[derive(Clone, Default)]
pub struct Layers {
    pub defaults: Parameters,
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

/// Where values are stored.
#[derive(Clone, Copy)]
enum Storage {
    /// In the release object.
    Inline,
    /// In a Secret, because one of their sources may be secret.
    Secret {
        /// Whether a Secret with other values may be replaced.
        may_replace: bool,
    },
}

/// Composes values.
pub struct Values {
    pub client: Client,
    pub templates: Templates,
    pub sources: ParameterSources,
    pub schema_check: SchemaCheck,
}

impl Values {
    /// Composes the values of an instance for each cluster. Unless `write`, the Secret of a release object that refers to other
    /// values is left unchanged, because the object may wait.
    pub async fn of(
        &self,
        instance: &ExtensionInstance,
        clusters: ClusterMap<(Arc<DynamicObject>, Layers)>,
        existing: &ClusterMap<Arc<AddonRelease>>,
        write: bool,
    ) -> Result<ClusterMap<ValuesResult>, ReconcileError> {
        let namespace = instance.namespace().unwrap_or_default();
        let spec = &instance.spec;
        let account = spec.service_account_name.as_deref();
        let read = match self.sources.read(&namespace, account, &spec.parameters_from).await {
            Ok(read) => read,
            Err(failure) => {
                return Ok(clusters.into_keys().map(|key| (key, Err(failure.clone().into()))).collect());
            }
        };
        let template = spec.parameters_template.as_deref().unwrap_or_default();
        let objects = clusters.iter().map(|(key, (cluster, _))| (key.clone(), cluster.clone())).collect();
        let uid = instance.uid().unwrap_or_default();
        let mut templates = self.templates.evaluate_all(&uid, template, &objects).await?;
        let mut results = BTreeMap::new();
        for (done, (key, (_, layers))) in clusters.into_iter().enumerate() {
            take_turns(done).await;
            let template = templates.remove(&key).unwrap_or_else(|| Ok(String::new()));
            let current = existing.get(&key);
            let values = match template.and_then(|text| merged(instance, &layers, &read, &text)) {
                Ok(parameters) => self.validated(&namespace, &layers, &parameters, current).await,
                Err(error) => Err(error),
            };
            let values = match values {
                Ok(values) => {
                    let current = current.map(AsRef::as_ref);
                    let (parameters, defaults) = (digest_of(&read.layers), defaults_digest(&layers));
                    let storage =
                        if read.secret { Storage::Secret { may_replace: write } } else { Storage::Inline };
                    let stored = self.store(instance, &key, values, storage, &layers, current).await;
                    stored.map(|(values, values_secret)| {
                        let is_other = |current: &AddonRelease| current.spec.values_secret != values_secret;
                        let is_unwritten = !write && values_secret.is_some() && current.is_some_and(is_other);
                        ComposedValues { values, values_secret, parameters, defaults, is_unwritten }
                    })
                }
                Err(error) => Err(error),
            };
            results.insert(key, values);
        }
        Ok(results)
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

    /// Stores values.
    async fn store(
        &self,
        instance: &ExtensionInstance,
        cluster: &ClusterKey,
        values: Rendered,
        storage: Storage,
        layers: &Layers,
        existing: Option<&AddonRelease>,
    ) -> Result<(Option<String>, Option<ValuesSecret>), ComposeError> {
        let Storage::Secret { may_replace } = storage else {
            return Ok((Some(values.text).filter(|text| !text.is_empty()), None));
        };
        let name = format!("{}-values", addon_release_name(instance, &cluster.name));
        let reference = ValuesSecret { name, digest: values.digest.to_string() };
        let is_other =
            existing.is_some_and(|existing| existing.spec.values_secret.as_ref() != Some(&reference));
        if (may_replace || !is_other)
            && must_write_values(existing, &reference, &layers.source, layers.pinned.as_ref())
        {
            self.write(instance, &reference.name, &values).await?;
        }
        Ok((None, Some(reference)))
    }

    async fn write(
        &self,
        instance: &ExtensionInstance,
        name: &str,
        values: &Rendered,
    ) -> Result<(), ComposeError> {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.namespace = instance.namespace();
        secret.metadata.owner_references = instance.controller_owner_ref(&()).map(|owner| vec![owner]);
        secret.string_data = Some(BTreeMap::from([(VALUES_KEY.to_owned(), values.text.clone())]));
        let api: Api<Secret> =
            Api::namespaced(self.client.clone(), &instance.namespace().unwrap_or_default());
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let written = api.patch(name, &parameters, &Patch::Apply(&secret)).await;
        written.map(|_| ()).map_err(|source| ComposeError::WriteValues { name: name.to_owned(), source })
    }
}

fn digest_of(parameters: &impl serde::Serialize) -> String {
    Digest::of(serde_json::to_string(parameters).unwrap_or_default()).to_string()
}

fn defaults_digest(layers: &Layers) -> String {
    if layers.defaults.is_empty() { String::new() } else { digest_of(&layers.defaults) }
}

/// Merges the layers of a cluster and validates them against the schema of the version.
fn merged(
    instance: &ExtensionInstance,
    layers: &Layers,
    read: &Read,
    template: &str,
) -> Result<Parameters, ComposeError> {
    let template = from_yaml("spec.parametersTemplate", template)?;
    let own = instance.spec.parameters.clone().unwrap_or_default();
    let all = [layers.defaults.clone()].into_iter().chain(read.layers.iter().cloned()).chain([template, own]);
    let parameters = merge(all);
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
