//! Reads `parametersFrom`: Secrets and ConfigMaps in the namespace of the instance, and other objects that the instance's
//! ServiceAccount may read. They are read when they are needed, and watched where that is allowed.

mod objects;
mod watches;

use std::sync::Arc;

use chandler_api::extensions::{KeyReference, ObjectField, ObjectList, ParametersFrom};
use chandler_core::{
    failure::{Category, Failure},
    parameters::{Parameters, SourceValue, has_values_of_release, json_size, lookup, visible_object},
};
use k8s_openapi::ByteString;
use kube::{Client, core::Selector};
use serde_json::Value;

pub use self::objects::impersonation;
use self::{
    objects::{Objects, Problem, too_large},
    watches::Placement,
};
use crate::routing::Router;

/// The size of a list of objects, as templates see it. Each cluster has a copy while its template is evaluated.
const MAX_LIST: usize = 1 << 20;

/// Reads parameters from objects of the management cluster. Clones share what was read, and the watches.
#[derive(Clone)]
pub struct ParameterSources {
    objects: Arc<Objects>,
    /// The list of sources in messages.
    field: &'static str,
}

/// What an entry of `parametersFrom` refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Names the source in messages.
    pub source: String,
    /// The list of sources that the entry is in.
    pub field: &'static str,
    /// `None` if it is optional and absent.
    pub value: Option<SourceValue>,
}

impl Found {
    /// Returns the layer of parameters, which an absent source does not have.
    pub fn layer(self, parameter: Option<&str>) -> Result<Option<Parameters>, Failure> {
        self.value.map(|value| value.layer(&self.source, self.field, parameter)).transpose()
    }
}

impl ParameterSources {
    pub fn new(client: Client) -> Self {
        Self::with(Objects::new(client, None))
    }

    /// Reads with the permissions of a user, and collects secret values.
    pub fn of_user(client: Client) -> Self {
        Self::with(Objects::of_user(client))
    }

    fn with(objects: Objects) -> Self {
        Self { objects: Arc::new(objects), field: "parametersFrom" }
    }

    /// Watches what is read, as far as that is allowed, and enqueues the placements that read it when it changes.
    pub fn watching(client: Client, router: Router) -> Self {
        let on_change = Arc::new(move |changed: &Placement| {
            router.on_parameter_sources(&changed.namespace, &changed.uid);
        });
        Self::with(Objects::new(client, Some(on_change)))
    }

    /// Returns the same sources for entries of another list.
    #[must_use]
    pub fn of_field(&self, field: &'static str) -> Self {
        Self { objects: self.objects.clone(), field }
    }

    /// Returns whether secret values are collected. They are masked in what the user sees.
    pub fn collects_secrets(&self) -> bool {
        self.objects.of_user
    }

    /// Returns the name of the list of sources.
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// Reads the source of an entry of the placement in `namespace` that has this uid. Objects other than Secrets and ConfigMaps
    /// are read with the permissions of its ServiceAccount only.
    pub async fn find(
        &self,
        namespace: &str,
        uid: &str,
        service_account: Option<&str>,
        from: &ParametersFrom,
    ) -> Result<Found, Failure> {
        let placement = Placement { namespace: namespace.to_owned(), uid: uid.to_owned() };
        let (source, value) = self.source(&placement, service_account, from).await?;
        Ok(Found { source, field: self.field, value })
    }

    async fn source(
        &self,
        placement: &Placement,
        service_account: Option<&str>,
        from: &ParametersFrom,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        if let Some(secret) = &from.secret {
            return self.key(placement, "Secret", "secrets", secret, secret_key).await;
        }
        if let Some(config_map) = &from.config_map {
            return self.key(placement, "ConfigMap", "configmaps", config_map, config_map_key).await;
        }
        if let Some(list) = &from.objects {
            return self.list(placement, service_account, list).await;
        }
        let Some(field) = &from.object else {
            return Err(spec(&format!("{} has an entry without a source: set one", self.field)));
        };
        let Some(account) = service_account else {
            return Err(spec(
                "parametersFrom names an object, but spec.serviceAccountName is not set: set it to a ServiceAccount \
                 that may read the object",
            ));
        };
        self.object_field(placement, account, field).await
    }

    async fn key(
        &self,
        placement: &Placement,
        kind: &str,
        plural: &str,
        reference: &KeyReference,
        value: fn(&Value, &str) -> Option<Vec<u8>>,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        let KeyReference { name, key, optional } = reference;
        let object = format!("{kind} {}/{name}", placement.namespace);
        let source = format!("key {key} of {object}");
        let read = match self.objects.read(placement, plural, name).await {
            Ok(read) => value(source_in(&object, kind == "Secret", &read)?, key),
            Err(Problem::Absent) if *optional => None,
            Err(Problem::Absent) => {
                return Err(self.missing(&format!("{object} does not exist"), "create it"));
            }
            Err(Problem::Unreadable(error)) => return Err(error.failure(&object)),
        };
        match read {
            Some(bytes) => {
                let text = String::from_utf8(bytes).map_err(|_| {
                    Failure::new(Category::InvalidValues, format!("{source} is not UTF-8 text"))
                })?;
                Ok((source, Some(SourceValue::Text(text))))
            }
            None if *optional => Ok((source, None)),
            None => Err(self.missing(&format!("{object} has no key {key}"), "add it")),
        }
    }

    async fn list(
        &self,
        placement: &Placement,
        service_account: Option<&str>,
        list: &ObjectList,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        let namespace = placement.namespace.as_str();
        let ObjectList { api_version, kind, selector, .. } = list;
        let is_core = |name: &str| api_version == "v1" && kind == name;
        let home = list.namespace.as_deref().unwrap_or(namespace);
        let is_own = home == namespace && (is_core("Secret") || is_core("ConfigMap"));
        if service_account.is_none() && !is_own {
            return Err(spec(
                "parametersFrom lists objects, but spec.serviceAccountName is not set: set it to a ServiceAccount that may \
                 list them",
            ));
        }
        let selector = Selector::try_from(selector.clone())
            .map_err(|error| spec(&format!("parametersFrom has an invalid selector: {error}")))?;
        let source = format!("list of {kind} in namespace {home} with labels {selector}");
        match self.objects.list(placement, service_account, home, list, &selector.to_string()).await {
            Ok(listed) => {
                let is_secret = is_core("Secret");
                let found = listed.get("items").and_then(Value::as_array).into_iter().flatten();
                let sources = found.filter(|object| !(is_secret && has_values_of_release(object)));
                let visible: Vec<_> = sources.map(|object| visible_object(object, is_secret)).collect();
                if visible.iter().map(json_size).sum::<usize>() > MAX_LIST {
                    return Err(too_large(MAX_LIST).failure(&format!("the {source}")));
                }
                Ok((source, Some(SourceValue::Objects(visible))))
            }
            Err(Problem::Absent) => Err(Failure::new(
                Category::InvalidSpec,
                format!(
                    "{api_version} does not have kind {kind}: correct apiVersion and kind in parametersFrom"
                ),
            )),
            Err(Problem::Unreadable(error)) => Err(error.failure(&format!("the {source}"))),
        }
    }

    async fn object_field(
        &self,
        placement: &Placement,
        account: &str,
        field: &ObjectField,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        let ObjectField { kind, name, path, optional, .. } = field;
        let object_namespace = field.namespace.as_deref().unwrap_or(&placement.namespace);
        let object = format!("{kind} {object_namespace}/{name}");
        let source = format!("field {path} of {object}");
        let is_secret = field.api_version == "v1" && kind == "Secret";
        match self.objects.read_as(placement, account, object_namespace, field).await {
            Ok(read) => match lookup(source_in(&object, is_secret, &read)?, path) {
                Some(value) => Ok((source, Some(SourceValue::Value(value.clone())))),
                None if *optional => Ok((source, None)),
                None => Err(self.missing(&format!("{object} has no field {path}"), "correct the path")),
            },
            Err(Problem::Absent) if *optional => Ok((source, None)),
            Err(Problem::Absent) => Err(self.missing(
                &format!("{object} does not exist, or {} does not have this kind", field.api_version),
                "create it, or correct apiVersion, kind, namespace and name",
            )),
            Err(Problem::Unreadable(error)) => Err(error.failure(&object)),
        }
    }

    fn missing(&self, what: &str, next: &str) -> Failure {
        Failure::new(
            Category::InvalidValues,
            format!("{what}: {next}, or set optional in its entry of {}", self.field),
        )
    }
}

/// Returns an object unless it is a Secret with the values of a release: a release whose values contain themselves would be upgraded
/// for ever.
fn source_in<'a>(name: &str, is_secret: bool, object: &'a Value) -> Result<&'a Value, Failure> {
    if is_secret && has_values_of_release(object) {
        return Err(spec(&format!("{name} contains the values of a release: name another Secret")));
    }
    Ok(object)
}

fn secret_key(secret: &Value, key: &str) -> Option<Vec<u8>> {
    bytes(secret.get("data")?.get(key)?)
}

fn config_map_key(config_map: &Value, key: &str) -> Option<Vec<u8>> {
    let text = config_map.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let text = text.map(|text| text.as_bytes().to_vec());
    text.or_else(|| bytes(config_map.get("binaryData")?.get(key)?))
}

fn bytes(encoded: &Value) -> Option<Vec<u8>> {
    serde_json::from_value::<ByteString>(encoded.clone()).ok().map(|bytes| bytes.0)
}

fn spec(message: &str) -> Failure {
    Failure::new(Category::InvalidSpec, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_releases_are_not_read() {
        let owned = json!({"metadata": {"ownerReferences": [{"kind": "AddonRelease"}]}});
        let failure = source_in("Secret fleet/net-blue-values", true, &owned).unwrap_err();
        assert_eq!(failure.category, Category::InvalidSpec);
        assert!(failure.message.starts_with("Secret fleet/net-blue-values contains"), "{failure}");
        assert!(source_in("AddonRelease fleet/net-blue", false, &owned).is_ok());
        assert!(source_in("Secret fleet/login", true, &json!({"metadata": {}})).is_ok());
    }
}
