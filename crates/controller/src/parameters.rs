//! Reads `parametersFrom`: Secrets and ConfigMaps in the namespace of the instance, and fields of objects that the
//! instance's ServiceAccount may read. Objects are read individually, not listed or watched.

mod objects;

use chandler_api::extensions::{KeyReference, ObjectField, ParametersFrom};
use chandler_core::{
    failure::{Category, Failure},
    parameters::{Parameters, SourceValue, lookup},
};
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::Value;

pub use self::objects::impersonation;
use self::objects::{Objects, Problem};

/// Reads parameters from objects of the management cluster.
pub struct ParameterSources {
    objects: Objects,
}

/// The parameters of all `parametersFrom` entries.
#[derive(Clone, Default, PartialEq)]
pub struct Read {
    /// In the order of the entries. Absent optional entries have no layer.
    pub layers: Vec<Parameters>,
    /// Whether the values have to be stored in a Secret: an entry refers to a Secret or to an object with unknown
    /// content. It depends on the references only, so that values do not move back and forth.
    pub secret: bool,
}

/// Omits the layers, which may be secret.
impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("layers", &self.layers.len()).field("secret", &self.secret).finish()
    }
}

impl ParameterSources {
    pub fn new(client: Client) -> Self {
        Self { objects: Objects::new(client) }
    }

    /// Reads the sources of an instance in `namespace`. Objects other than Secrets and ConfigMaps are read with the
    /// permissions of its ServiceAccount only.
    pub async fn read(
        &self,
        namespace: &str,
        service_account: Option<&str>,
        from: &[ParametersFrom],
    ) -> Result<Read, Failure> {
        let secret = from.iter().any(|entry| entry.secret.is_some() || entry.object.is_some());
        let mut layers = Vec::with_capacity(from.len());
        for entry in from {
            let (source, found) = self.find(namespace, service_account, entry).await?;
            if let Some(found) = found {
                layers.push(found.layer(&source, entry.parameter.as_deref())?);
            }
        }
        Ok(Read { layers, secret })
    }

    /// Returns the description of an entry's source and its value. The value is `None` if it is optional and absent.
    async fn find(
        &self,
        namespace: &str,
        service_account: Option<&str>,
        from: &ParametersFrom,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        if let Some(secret) = &from.secret {
            return self.key(namespace, "Secret", "secrets", secret, secret_key).await;
        }
        if let Some(config_map) = &from.config_map {
            return self.key(namespace, "ConfigMap", "configmaps", config_map, config_map_key).await;
        }
        let Some(field) = &from.object else {
            return Err(spec(
                "parametersFrom has an entry without a source: set secret, configMap or object",
            ));
        };
        let Some(account) = service_account else {
            return Err(spec(
                "parametersFrom names an object, but spec.serviceAccountName is not set: set it to a ServiceAccount \
                 that may read the object",
            ));
        };
        self.field(namespace, account, field).await
    }

    async fn key(
        &self,
        namespace: &str,
        kind: &str,
        plural: &str,
        reference: &KeyReference,
        value: fn(&Value, &str) -> Option<Vec<u8>>,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        let KeyReference { name, key, optional } = reference;
        let object = format!("{kind} {namespace}/{name}");
        let source = format!("key {key} of {object}");
        let read = match self.objects.read(namespace, plural, name).await {
            Ok(read) => value(&read, key),
            Err(Problem::Absent) if *optional => None,
            Err(Problem::Absent) => {
                return Err(missing(&format!("{object} does not exist"), "create it"));
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
            None => Err(missing(&format!("{object} has no key {key}"), "add it")),
        }
    }

    async fn field(
        &self,
        namespace: &str,
        account: &str,
        field: &ObjectField,
    ) -> Result<(String, Option<SourceValue>), Failure> {
        let ObjectField { kind, name, path, optional, .. } = field;
        let object_namespace = field.namespace.as_deref().unwrap_or(namespace);
        let object = format!("{kind} {object_namespace}/{name}");
        let source = format!("field {path} of {object}");
        match self.objects.read_as(namespace, account, object_namespace, field).await {
            Ok(read) => match lookup(&read, path) {
                Some(value) => Ok((source, Some(SourceValue::Value(value.clone())))),
                None if *optional => Ok((source, None)),
                None => Err(missing(&format!("{object} has no field {path}"), "correct the path")),
            },
            Err(Problem::Absent) if *optional => Ok((source, None)),
            Err(Problem::Absent) => Err(missing(
                &format!("{object} does not exist, or {} does not have this kind", field.api_version),
                "create it, or correct apiVersion, kind, namespace and name",
            )),
            Err(Problem::Unreadable(error)) => Err(error.failure(&object)),
        }
    }
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

fn missing(what: &str, next: &str) -> Failure {
    Failure::new(
        Category::InvalidValues,
        format!("{what}: {next}, or set optional in its entry of parametersFrom"),
    )
}

fn spec(message: &str) -> Failure {
    Failure::new(Category::InvalidSpec, message)
}
