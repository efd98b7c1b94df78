//! The layers of parameters below those of the instance itself: defaults, and `parametersFrom`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::extensions::ParametersFrom;
use chandler_core::{
    digest::Digest,
    failure::Failure,
    identity::{ClusterKey, ClusterMap},
    parameters::{
        Parameters, SecretContent, SecretValues, SourceValue, depends_on_cluster, from_yaml, may_be_secret,
        merge_into, reference_texts, value_from_yaml,
    },
    placement::refers_to,
};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::{
    ReconcileError,
    parameters::{Found, ParameterSources},
    placement::ComposeError,
    tasks::take_turns,
    templates::{ClusterTemplate, Templates},
};

/// How many clusters are handled at a time. Each may have its own copy of what was read and of the data of a template.
const BATCH: usize = 48;

/// The parameters of one cluster, as far as they are composed.
pub struct ClusterParameters {
    pub cluster: Arc<DynamicObject>,
    /// The layers so far, merged, or why one of them is missing.
    pub merged: Result<Parameters, ComposeError>,
    /// Digests of what was read from objects that do not depend on the cluster.
    pub shared: Vec<String>,
    /// Whether one of the layers so far may contain data of Secrets.
    may_be_secret: bool,
    /// The values that come from Secrets, if the sources collect them.
    pub secrets: SecretValues,
}

impl ClusterParameters {
    pub fn new(cluster: Arc<DynamicObject>, defaults: Parameters) -> Self {
        Self {
            cluster,
            merged: Ok(defaults),
            shared: Vec::new(),
            may_be_secret: false,
            secrets: SecretValues::default(),
        }
    }

    fn add(&mut self, layer: Result<Option<Parameters>, ComposeError>) {
        match (&mut self.merged, layer) {
            (Ok(merged), Ok(Some(layer))) => merge_into(merged, layer),
            (Ok(_), Err(error)) => self.merged = Err(error),
            (Ok(_), Ok(None)) | (Err(_), _) => {}
        }
    }

    /// Returns the data `.Values` of a template, if it refers to it.
    fn values(&self, template: &str) -> Parameters {
        match &self.merged {
            Ok(merged) if refers_to(template, "Values") => values_data(merged.clone()),
            Ok(_) | Err(_) => Parameters::new(),
        }
    }

    /// Returns a template for the cluster that sees the layers so far as `.Values`.
    fn template(&self, template: String) -> ClusterTemplate {
        let other = self.values(&template);
        ClusterTemplate { template, cluster: self.cluster.clone(), other, content: None }
    }
}

/// What was read for an entry. Clusters with the same reference share it.
struct Source {
    content: Content,
    /// The values that come from Secrets, if the sources collect them.
    secrets: SecretValues,
}

enum Content {
    /// It is optional and absent.
    Absent,
    /// A layer of parameters, and its digest.
    Layer(Parameters, String),
    /// What the template of the entry sees, its name, and its digest.
    OfTemplate(&'static str, Arc<Value>, String),
}

impl Content {
    fn new(entry: &ParametersFrom, found: Found) -> Result<Self, Failure> {
        if entry.template.is_some() {
            return Ok(found.value.map_or(Self::Absent, |value| {
                let (name, content) = value.into_template_data();
                let digest = Digest::of(content.to_string()).to_string();
                Self::OfTemplate(name, Arc::new(content), digest)
            }));
        }
        let layer = found.layer(entry.parameter.as_deref())?;
        Ok(layer.map_or(Self::Absent, |layer| {
            let digest = Digest::of(serde_json::to_string(&layer).unwrap_or_default()).to_string();
            Self::Layer(layer, digest)
        }))
    }

    fn digest(&self) -> Option<&String> {
        match self {
            Self::Absent => None,
            Self::Layer(_, digest) | Self::OfTemplate(_, _, digest) => Some(digest),
        }
    }
}

type Sources = ClusterMap<Result<Arc<Source>, ComposeError>>;
type ClusterLayers = ClusterMap<Result<Option<Parameters>, ComposeError>>;

/// Returns the data of a template that sees these parameters as `.Values`.
pub fn values_data(values: Parameters) -> Parameters {
    std::iter::once(("Values".to_owned(), values.into())).collect()
}

/// Adds layers to the parameters of the clusters of one placement.
pub struct LayerBuilder<'a> {
    pub templates: &'a Templates,
    pub sources: &'a ParameterSources,
    pub namespace: &'a str,
    pub service_account: Option<&'a str>,
    /// The uid of the placement, under which evaluated templates are cached.
    pub uid: &'a str,
}

impl LayerBuilder<'_> {
    /// Adds a layer of YAML with templates. `texts` returns the template of a cluster and the data that is not about the cluster;
    /// `None` means that `.Values` are the layers so far.
    pub async fn add_template(
        &self,
        name: &str,
        all: &mut ClusterMap<ClusterParameters>,
        texts: impl Fn(&ClusterKey) -> Option<(String, Option<Parameters>)>,
    ) -> Result<(), ReconcileError> {
        let template = |key: &ClusterKey, state: &ClusterParameters| {
            let (template, other) = texts(key).filter(|_| state.merged.is_ok())?;
            let Some(other) = other else { return Some(state.template(template)) };
            Some(ClusterTemplate { template, cluster: state.cluster.clone(), other, content: None })
        };
        for (key, text) in self.evaluate(name, all, template).await? {
            let layer = text.and_then(|text| Ok(Some(from_yaml(name, &text)?)));
            if let Some(state) = all.get_mut(&key) {
                state.add(layer);
            }
        }
        Ok(())
    }

    /// Adds the layer of an entry of `parametersFrom`, which has this number.
    pub async fn add_source(
        &self,
        number: usize,
        entry: &ParametersFrom,
        all: &mut ClusterMap<ClusterParameters>,
    ) -> Result<(), ReconcileError> {
        let shared =
            if depends_on_cluster(entry) { None } else { Some(self.find(entry).await.map(Arc::new)) };
        let mut rest = std::mem::take(all);
        while let Some(mut batch) = next_batch(&mut rest) {
            self.add_source_to(number, entry, shared.as_ref(), &mut batch).await?;
            all.append(&mut batch);
        }
        Ok(())
    }

    /// Adds the layer of an entry for some clusters. `shared` is what was read for it, if that does not depend on the cluster.
    async fn add_source_to(
        &self,
        number: usize,
        entry: &ParametersFrom,
        shared: Option<&Result<Arc<Source>, Failure>>,
        all: &mut ClusterMap<ClusterParameters>,
    ) -> Result<(), ReconcileError> {
        let found: Sources = match shared {
            Some(source) => all.keys().map(|key| (key.clone(), source.clone().map_err(Into::into))).collect(),
            None => self.find_each(number, entry, all).await?,
        };
        let mut layers = match &entry.template {
            Some(template) => self.map(number, (entry, template), all, &found).await?,
            None => BTreeMap::new(),
        };
        let collects_secrets = self.sources.collects_secrets();
        for (done, (key, found)) in found.into_iter().enumerate() {
            take_turns(done).await;
            let Some(state) = all.get_mut(&key) else { continue };
            state.may_be_secret |= may_be_secret(std::slice::from_ref(entry));
            // Templates may see parameters of the cluster, so what they see of shared objects is recorded instead of the result.
            if let Some(Ok(source)) = shared {
                state.shared.extend(source.content.digest().cloned());
            }
            let layer = found.and_then(|source| {
                if collects_secrets {
                    state.secrets.extend(&source.secrets);
                }
                match &source.content {
                    Content::Absent => Ok(None),
                    Content::Layer(layer, _) => Ok(Some(layer.clone())),
                    Content::OfTemplate(..) => layers.remove(&key).unwrap_or(Ok(None)),
                }
            });
            if let (Ok(Some(layer)), true, SecretContent::All) =
                (&layer, collects_secrets, SecretContent::of(entry))
            {
                state.secrets.add_layer(layer);
            }
            state.add(layer);
        }
        Ok(())
    }

    /// Returns the layer of each cluster that a template makes of what was found.
    async fn map(
        &self,
        number: usize,
        (entry, template): (&ParametersFrom, &str),
        all: &ClusterMap<ClusterParameters>,
        found: &Sources,
    ) -> Result<ClusterLayers, ReconcileError> {
        let with_content = |key: &ClusterKey, state: &ClusterParameters| {
            if state.merged.is_err() {
                return None;
            }
            let source = found.get(key)?.as_ref().ok()?;
            let Content::OfTemplate(name, content, _) = &source.content else { return None };
            let content = Some((*name, Arc::clone(content)));
            Some(ClusterTemplate { content, ..state.template(template.to_owned()) })
        };
        let field = self.sources.field();
        let name = format!("template of {field}[{number}]");
        let mut layers = BTreeMap::new();
        for (key, text) in self.evaluate(&name, all, with_content).await? {
            let layer = text.and_then(|text| {
                let value = value_from_yaml(&name, &text)?;
                let value = (!value.is_null()).then_some(SourceValue::Value(value));
                let found = Found { source: name.clone(), field, value };
                Ok(found.layer(entry.parameter.as_deref())?)
            });
            layers.insert(key, layer);
        }
        Ok(layers)
    }

    /// Reads the objects that an entry names for each cluster.
    async fn find_each(
        &self,
        number: usize,
        entry: &ParametersFrom,
        all: &ClusterMap<ClusterParameters>,
    ) -> Result<Sources, ReconcileError> {
        let entries = self.entries(number, entry, all).await?;
        let has_secret_names = all.values().any(|state| state.may_be_secret)
            && reference_texts(&mut entry.clone()).iter().any(|text| refers_to(text, "Values"));
        // Clusters with the same reference share the result, also if it is a failure.
        let mut known: HashMap<String, Result<Arc<Source>, Failure>> = HashMap::new();
        let mut found = BTreeMap::new();
        for (key, entry) in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    found.insert(key, Err(error));
                    continue;
                }
            };
            let reference = serde_json::to_string(&entry).unwrap_or_default();
            let result = match known.get(&reference) {
                Some(result) => result.clone(),
                None => match self.find(&entry).await {
                    Err(failure) if has_secret_names => Err(self.without_names(number, &failure)),
                    source => source.map(Arc::new),
                },
            };
            known.insert(reference, result.clone());
            found.insert(key, result.map_err(Into::into));
        }
        Ok(found)
    }

    /// Evaluates the reference of an entry for each cluster.
    async fn entries(
        &self,
        number: usize,
        entry: &ParametersFrom,
        all: &ClusterMap<ClusterParameters>,
    ) -> Result<ClusterMap<Result<ParametersFrom, ComposeError>>, ReconcileError> {
        // Without all layers below, a reference would name something else.
        let complete = all.iter().filter(|(_, state)| state.merged.is_ok());
        let mut entries: ClusterMap<Result<ParametersFrom, ComposeError>> =
            complete.map(|(key, _)| (key.clone(), Ok(entry.clone()))).collect();
        for (field, text) in reference_texts(&mut entry.clone()).into_iter().enumerate() {
            if !text.contains("{{") {
                continue;
            }
            let template = |_: &ClusterKey, state: &ClusterParameters| {
                state.merged.is_ok().then(|| state.template(text.clone()))
            };
            let name = format!("reference {field} of {}[{number}]", self.sources.field());
            for (key, evaluated) in self.evaluate(&name, all, template).await? {
                let Some(entry) = entries.get_mut(&key) else { continue };
                match evaluated {
                    Ok(evaluated) => {
                        let texts = entry.as_mut().map(reference_texts).unwrap_or_default();
                        texts
                            .into_iter()
                            .skip(field)
                            .take(1)
                            .for_each(|text| evaluated.trim().clone_into(text));
                    }
                    Err(error) => *entry = Err(error),
                }
            }
        }
        Ok(entries)
    }

    /// Returns a failure of an entry without its message, which contains the names of the objects.
    fn without_names(&self, number: usize, failure: &Failure) -> Failure {
        let message = format!(
            "the source of {}[{number}] is not available ({}): the message is left out, because the reference is made of \
             parameters that may be secret",
            self.sources.field(),
            failure.category
        );
        Failure::new(failure.category, message)
    }

    async fn find(&self, entry: &ParametersFrom) -> Result<Source, Failure> {
        let found = self.sources.find(self.namespace, self.uid, self.service_account, entry).await?;
        let mut secrets = SecretValues::default();
        if let (true, Some(value)) = (self.sources.collects_secrets(), &found.value) {
            secrets.add_source(value, SecretContent::of(entry));
        }
        Ok(Source { content: Content::new(entry, found)?, secrets })
    }

    /// Evaluates the template that `template` returns for each cluster, some clusters at a time.
    async fn evaluate(
        &self,
        name: &str,
        all: &ClusterMap<ClusterParameters>,
        template: impl Fn(&ClusterKey, &ClusterParameters) -> Option<ClusterTemplate>,
    ) -> Result<ClusterMap<Result<String, ComposeError>>, ReconcileError> {
        let placement = format!("{} {name}", self.uid);
        let clusters: Vec<_> = all.iter().collect();
        let mut results = BTreeMap::new();
        for batch in clusters.chunks(BATCH) {
            let templates = batch
                .iter()
                .filter_map(|(key, state)| Some(((*key).clone(), template(key, state)?)))
                .collect();
            results.extend(self.templates.evaluate_each(&placement, templates).await?);
        }
        Ok(results)
    }
}

/// Takes some clusters. Returns `None` if there are no more.
fn next_batch<T>(clusters: &mut ClusterMap<T>) -> Option<ClusterMap<T>> {
    let rest = match clusters.keys().nth(BATCH).cloned() {
        Some(next) => clusters.split_off(&next),
        None => BTreeMap::new(),
    };
    Some(std::mem::replace(clusters, rest)).filter(|batch| !batch.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(entry: Value) -> ParametersFrom {
        serde_json::from_value(entry).unwrap()
    }

    fn found(value: Option<SourceValue>) -> Found {
        Found { source: "it".to_owned(), field: "parametersFrom", value }
    }

    #[test]
    fn what_was_read_is_recorded_as_a_digest() {
        let reference = json!({"name": "a", "key": "b"});
        let plain = entry(json!({"configMap": reference}));
        let template = entry(json!({"configMap": reference, "template": "{{ .Content }}"}));
        let text = |text: &str| found(Some(SourceValue::Text(text.to_owned())));
        for entry in [&plain, &template] {
            let digest = |found| Content::new(entry, found).unwrap().digest().cloned();
            assert_eq!(digest(found(None)), None);
            assert_eq!(digest(text("a: 1")), digest(text("a: 1")));
            assert_ne!(digest(text("a: 1")), digest(text("a: 2")));
        }
        let content = Content::new(&template, text("a: 1")).unwrap();
        assert!(matches!(&content, Content::OfTemplate("Content", value, _) if **value == json!("a: 1")));
        assert!(
            Content::new(&template, text("- no map")).is_ok()
                && Content::new(&plain, text("- no map")).is_err()
        );
    }

    #[test]
    fn clusters_are_handled_in_batches() {
        let key = |number: usize| ClusterKey::new("fleet", format!("c{number:03}"));
        for (count, expected) in
            [(0, vec![]), (1, vec![1]), (BATCH, vec![BATCH]), (2 * BATCH + 1, vec![BATCH, BATCH, 1])]
        {
            let mut rest: ClusterMap<usize> = (0..count).map(|number| (key(number), number)).collect();
            let batches: Vec<_> = std::iter::from_fn(|| next_batch(&mut rest)).collect();
            assert_eq!(batches.iter().map(BTreeMap::len).collect::<Vec<_>>(), expected);
            assert!(batches.into_iter().flat_map(BTreeMap::into_values).eq(0..count));
        }
    }

    #[test]
    fn templates_see_values_only_if_they_refer_to_them() {
        let cluster = DynamicObject::new("blue", &crate::clusters::class_resource());
        let parameters = json!({"zone": "a"}).as_object().cloned().unwrap();
        let state = ClusterParameters::new(Arc::new(cluster), parameters);
        let rows = [
            ("{{ .Values.zone }}", json!({"Values": {"zone": "a"}})),
            ("# Values of {{ .Cluster.metadata.name }}", json!({})),
            ("{{ .Cluster.spec.Values }}", json!({})),
        ];
        for (template, expected) in rows {
            assert_eq!(Value::Object(state.template(template.to_owned()).other), expected, "{template}");
        }
    }
}
