//! The values of an instance's releases: layers of parameters, merged, checked, and kept where they may be read.

pub mod schema_check;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::{
    FIELD_MANAGER,
    extensions::{AddonRelease, ExtensionInstance, PackageSource, ValuesSecret},
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    parameters::{Parameters, Rendered, Schema, from_yaml, merge, render, summarize},
    placement::addon_release_name,
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
    sync::Mutex,
    tasks::take_turns,
    templates::{TemplateInput, Templates},
};

/// Values as text, or the Secret they are in.
type Made = Result<(Option<String>, Option<ValuesSecret>), ComposeError>;

/// Evaluated templates that are kept.
const MOST_EVALUATED: usize = 10_000;

/// What the chosen version has to say about parameters.
#[derive(Clone, Default)]
pub struct Layers {
    pub defaults: Parameters,
    /// None: the package may have one.
    pub schema: Option<Parameters>,
    pub source: PackageSource,
}

/// Makes values.
pub struct Values {
    pub client: Client,
    pub templates: Templates,
    pub sources: ParameterSources,
    pub schema_check: SchemaCheck,
    /// What templates came to, by instance and cluster.
    pub evaluated: Mutex<HashMap<(String, ClusterKey), (Digest, String)>>,
}

impl Values {
    /// For each cluster.
    pub async fn of(
        &self,
        instance: &ExtensionInstance,
        clusters: ClusterMap<(Arc<DynamicObject>, Layers)>,
        existing: &ClusterMap<Arc<AddonRelease>>,
    ) -> Result<ClusterMap<Made>, ReconcileError> {
        let namespace = instance.namespace().unwrap_or_default();
        let spec = &instance.spec;
        let account = spec.service_account_name.as_deref();
        let read = match self.sources.read(&namespace, account, &spec.parameters_from).await {
            Ok(read) => read,
            Err(failure) => {
                return Ok(clusters.into_keys().map(|key| (key, Err(failure.clone().into()))).collect());
            }
        };
        let mut templates = self.templates(instance, &clusters).await?;
        let mut made = BTreeMap::new();
        for (done, (key, (_, layers))) in clusters.into_iter().enumerate() {
            take_turns(done).await;
            let template = templates.remove(&key).unwrap_or_else(|| Ok(String::new()));
            let there = existing.get(&key);
            let values = match template.and_then(|text| merged(instance, &layers, &read, &text)) {
                Ok(parameters) => self.checked(&namespace, &layers, &parameters, there).await,
                Err(error) => Err(error),
            };
            let values = match values {
                Ok(values) => self.keep(instance, &key, values, read.secret, there).await,
                Err(error) => Err(error),
            };
            made.insert(key, values);
        }
        Ok(made)
    }

    /// What `parametersTemplate` comes to; what was evaluated before from the same is not evaluated again.
    async fn templates(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<(Arc<DynamicObject>, Layers)>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        let template = instance.spec.parameters_template.as_deref().unwrap_or_default();
        let uid = instance.uid().unwrap_or_default();
        if !template.contains("{{") {
            return Ok(clusters.keys().map(|key| (key.clone(), Ok(template.to_owned()))).collect());
        }
        let (mut results, mut needed, mut digests) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (done, (key, (cluster, _))) in clusters.iter().enumerate() {
            take_turns(done).await;
            match self.templates.data(template, key, cluster).await {
                Ok((data, digest)) => {
                    if let Some(text) = self.known(&uid, key, &digest) {
                        results.insert(key.clone(), Ok(text));
                    } else {
                        needed.push(TemplateInput { cluster: key.clone(), data });
                        digests.insert(key.clone(), digest);
                    }
                }
                Err(error) => {
                    results.insert(key.clone(), Err(error));
                }
            }
        }
        for (key, result) in self.templates.evaluate(template, needed).await? {
            if let (Ok(text), Some(digest)) = (&result, digests.remove(&key)) {
                let mut evaluated = self.evaluated.lock();
                if evaluated.len() >= MOST_EVALUATED {
                    // Some are of instances and clusters that are gone; the rest is evaluated once more.
                    evaluated.clear();
                }
                evaluated.insert((uid.clone(), key.clone()), (digest, text.clone()));
            }
            results.insert(key, result);
        }
        Ok(results)
    }

    fn known(&self, uid: &str, key: &ClusterKey, digest: &Digest) -> Option<String> {
        let evaluated = self.evaluated.lock();
        let (from, text) = evaluated.get(&(uid.to_owned(), key.clone()))?;
        (from == digest).then(|| text.clone())
    }

    /// The values, if they fit the package. What is on its way to the cluster already was looked at before.
    async fn checked(
        &self,
        namespace: &str,
        layers: &Layers,
        parameters: &Parameters,
        there: Option<&Arc<AddonRelease>>,
    ) -> Result<Rendered, ComposeError> {
        let values = render(parameters);
        let known = there.is_some_and(|there| there.spec.source == layers.source && has(there, &values));
        if known || layers.schema.is_some() {
            return Ok(values);
        }
        let validate = self.schema_check.validate(namespace, &layers.source, parameters, &values).await;
        validate.map_or(Ok(values), |why| Err(ComposeError::Parameters(why)))
    }

    /// Values that a Secret had a part in are kept in a Secret.
    async fn keep(
        &self,
        instance: &ExtensionInstance,
        cluster: &ClusterKey,
        values: Rendered,
        secret: bool,
        existing: Option<&Arc<AddonRelease>>,
    ) -> Made {
        if !secret {
            return Ok((Some(values.text).filter(|text| !text.is_empty()), None));
        }
        let name = format!("{}-values", addon_release_name(instance, &cluster.name));
        let kept = ValuesSecret { name, digest: values.digest.to_string() };
        let known = existing.and_then(|release| release.spec.values_secret.as_ref());
        if known != Some(&kept) {
            self.write(instance, &kept.name, &values).await?;
        }
        Ok((None, Some(kept)))
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

/// The layers of a cluster as one, held against the version's schema.
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

/// Whether a release object has these values.
fn has(release: &AddonRelease, values: &Rendered) -> bool {
    match &release.spec.values_secret {
        Some(secret) => secret.digest == values.digest.to_string(),
        None => release.spec.values.as_deref().unwrap_or_default() == values.text,
    }
}
