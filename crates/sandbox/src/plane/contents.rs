//! All objects of a control plane, compared with those of a new one: one that was cleaned can be used again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The groups whose objects come and go by themselves.
const VOLATILE: [(&str, &str); 3] =
    [("", "Event"), ("events.k8s.io", "Event"), ("coordination.k8s.io", "Lease")];
/// Objects whose content differs between control planes.
const OWN_CONTENT: [&str; 4] = [
    "kubernetes",
    "kube-root-ca.crt",
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
];
/// What changes the writes of others is deleted first, so that it cannot refuse the deletion of the rest.
const FIRST: [&str; 5] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
];
/// Its finalizer deletes its objects. Without it, they would appear again with the next definition of the kind.
const DEFINITION: &str = "CustomResourceDefinition";
/// How long to wait for deletions at first. Each time it is twice as long, because reading all objects takes CPU time.
const FIRST_POLL: Duration = Duration::from_millis(250);
/// The length of a listed difference.
const LISTED: usize = 200;
/// After this time, finalizers are removed: the clients that wanted them are gone.
const FINALIZERS_AFTER: Duration = Duration::from_secs(2);

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: String,
    api_version: String,
    namespace: String,
    name: String,
}

/// The objects of a control plane, with what is compared of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents(BTreeMap<Key, Value>);

/// An object that is not as on a new control plane.
struct Leftover {
    key: Key,
    resource: ApiResource,
    has_finalizers: bool,
    /// What makes it like that of a new one. One that a new one has not is deleted.
    patch: Option<Value>,
}

impl Contents {
    /// Reads the objects of a new control plane, once its controllers have created what they create by themselves.
    pub async fn of_new(client: &kube::Client, timeout: Duration) -> Result<Self, String> {
        let deadline = Instant::now() + timeout;
        let mut last = Self::default();
        loop {
            let (current, _) = read(client).await.map_err(|error| error.to_string())?;
            if current == last {
                return Ok(current);
            }
            if Instant::now() > deadline {
                return Err(format!("the objects still change: {}", current.differences(&last)));
            }
            last = current;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// Deletes all objects of a control plane that a new one has not, resets the others, and checks that it is like a new one then. Returns what
    /// is different after `timeout`.
    pub async fn restore(&self, client: &kube::Client, timeout: Duration) -> Result<(), String> {
        let (begin, mut poll, mut last) = (Instant::now(), FIRST_POLL, String::new());
        while begin.elapsed() < timeout {
            match self.restore_once(client, begin.elapsed() > FINALIZERS_AFTER).await {
                Ok(differences) if differences.is_empty() => return Ok(()),
                Ok(differences) => last = differences,
                // A kind that was deleted meanwhile cannot be listed.
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(poll).await;
            poll *= 2;
        }
        Err(last)
    }

    /// Deletes what is left over, and resets what has changed. Returns how the control plane differs from a new one.
    async fn restore_once(&self, client: &kube::Client, remove_finalizers: bool) -> kube::Result<String> {
        let (current, resources) = read(client).await?;
        let differences = current.differences(self);
        let leftovers: Vec<_> =
            current.0.iter().filter_map(|(key, content)| self.leftover(key, content, &resources)).collect();
        let is_first = |leftover: &&Leftover| FIRST.contains(&leftover.key.kind.as_str());
        for leftover in leftovers.iter().filter(is_first) {
            clean(client, leftover, remove_finalizers).await;
        }
        // Namespaces take what is in them along.
        let gone: BTreeSet<_> = leftovers
            .iter()
            .filter(|leftover| leftover.key.kind == "Namespace" && leftover.patch.is_none())
            .map(|leftover| leftover.key.name.clone())
            .collect();
        for leftover in leftovers.iter().filter(|leftover| !is_first(leftover)) {
            if remove_finalizers || !gone.contains(&leftover.key.namespace) {
                clean(client, leftover, remove_finalizers).await;
            }
        }
        Ok(differences)
    }

    fn leftover(
        &self,
        key: &Key,
        content: &Value,
        resources: &BTreeMap<Key, ApiResource>,
    ) -> Option<Leftover> {
        let expected = self.0.get(key);
        if expected == Some(content) {
            return None;
        }
        let patch = expected.map(|expected| json_patch(content, expected));
        let of_kind = Key { namespace: String::new(), name: String::new(), ..key.clone() };
        let has_finalizers = content.pointer("/metadata/finalizers").is_some();
        Some(Leftover { key: key.clone(), resource: resources.get(&of_kind)?.clone(), has_finalizers, patch })
    }

    /// Describes the first differences to other contents.
    fn differences(&self, expected: &Self) -> String {
        let keys: BTreeSet<_> = self.0.keys().chain(expected.0.keys()).collect();
        let differ = keys.into_iter().filter(|key| self.0.get(key) != expected.0.get(key));
        let texts = differ.map(|key| {
            let what = match (self.0.get(key), expected.0.get(key)) {
                (Some(_), None) => "is left over".to_owned(),
                (None, _) => "is missing".to_owned(),
                (Some(current), Some(expected)) => {
                    let patch = json_patch(current, expected).to_string();
                    format!("needs the patch {}", patch.chars().take(LISTED).collect::<String>())
                }
            };
            format!("{} {}/{} {what}", key.kind, key.namespace, key.name)
        });
        texts.take(5).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the merge patch that makes an object like another one.
fn json_patch(current: &Value, expected: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (current, expected) else { return expected.clone() };
    let removed =
        from.keys().filter(|field| !to.contains_key(*field)).map(|field| (field.clone(), Value::Null));
    let changed = to.iter().filter_map(|(field, value)| {
        let current = from.get(field).unwrap_or(&Value::Null);
        (current != value).then(|| (field.clone(), json_patch(current, value)))
    });
    Value::Object(removed.chain(changed).collect())
}

/// Reads all objects, and the resources of their kinds.
async fn read(client: &kube::Client) -> kube::Result<(Contents, BTreeMap<Key, ApiResource>)> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let (mut contents, mut resources) = (Contents::default(), BTreeMap::new());
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let is_volatile = VOLATILE.contains(&(resource.group.as_str(), resource.kind.as_str()));
            let is_stored = capabilities.supports_operation(verbs::LIST)
                && capabilities.supports_operation(verbs::DELETE);
            if is_volatile || !is_stored {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list(&ListParams::default()).await? {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                let of_kind = of_kind(&resource);
                let key = Key { namespace, name, ..of_kind.clone() };
                resources.entry(of_kind).or_insert_with(|| resource.clone());
                contents.0.insert(key, comparable(object, capabilities.scope == Scope::Namespaced));
            }
        }
    }
    Ok((contents, resources))
}

fn of_kind(resource: &ApiResource) -> Key {
    let (kind, api_version) = (resource.kind.clone(), resource.api_version.clone());
    Key { kind, api_version, namespace: String::new(), name: String::new() }
}

/// Returns what users write into an object.
fn comparable(object: DynamicObject, is_namespaced: bool) -> Value {
    let DynamicObject { metadata, data, .. } = object;
    let has_own_content =
        is_namespaced && metadata.name.as_deref().is_some_and(|name| OWN_CONTENT.contains(&name));
    let mut content = match data {
        Value::Object(fields) if !has_own_content => fields,
        _ => serde_json::Map::new(),
    };
    content.remove("status");
    let metadata = json!({
        "labels": metadata.labels, "annotations": metadata.annotations, "finalizers": metadata.finalizers,
        "deletionTimestamp": metadata.deletion_timestamp,
    });
    content.insert("metadata".to_owned(), without_nulls(metadata));
    Value::Object(content)
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// Deletes or resets an object. Errors are ignored: the next comparison shows what is left.
async fn clean(client: &kube::Client, leftover: &Leftover, remove_finalizers: bool) {
    let Leftover { key, resource, has_finalizers, patch } = leftover;
    let api: Api<DynamicObject> = if key.namespace.is_empty() {
        Api::all_with(client.clone(), resource)
    } else {
        Api::namespaced_with(client.clone(), &key.namespace, resource)
    };
    let parameters = PatchParams::default();
    if let Some(patch) = patch {
        let _ = api.patch(&key.name, &parameters, &Patch::Merge(patch)).await;
        return;
    }
    let _ = api.delete(&key.name, &DeleteParams::default().grace_period(0)).await;
    if remove_finalizers && *has_finalizers && key.kind != DEFINITION {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = api.patch(&key.name, &parameters, &patch).await;
    }
}
