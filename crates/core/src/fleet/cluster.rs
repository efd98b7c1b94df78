//! The Fleet Cluster of a Cluster.

use std::collections::BTreeMap;

use chandler_api::capi::ClusterView;
use k8s_openapi::api::core::v1::Toleration;
use kube_core::SelectorExt as _;
use serde_json::{Map, Value, json};

use super::{API_VERSION, CLASS_NAME_LABEL, CLASS_NAMESPACE_LABEL, ClusterSettings, class_of, metadata};
use crate::{digest::Digest, identity::ClusterKey};

/// The suffix of the name of the Secret in which Cluster API stores the kubeconfig of a Cluster.
const KUBECONFIG_SUFFIX: &str = "-kubeconfig";

/// A Cluster to hand over, in the JSON form of the API server.
#[derive(Clone, Copy, Debug)]
pub struct HandedOver<'a> {
    pub cluster: &'a Value,
    pub view: &'a ClusterView,
    pub control_plane: TemplateObject<'a>,
    pub infrastructure_cluster: TemplateObject<'a>,
}

/// An object that Fleet's templates can read.
#[derive(Clone, Copy, Debug)]
pub enum TemplateObject<'a> {
    /// The Cluster does not refer to one.
    None,
    Known(&'a Value),
    /// It could not be read. The Fleet Cluster keeps what it has.
    Unknown,
}

/// Returns whether a Cluster is handed over. A control plane that is not initialized cannot be imported.
///
/// `namespace` has the labels of the namespace of the Cluster.
pub fn is_handed_over(
    settings: &ClusterSettings,
    cluster: &Value,
    view: &ClusterView,
    namespace: &BTreeMap<String, String>,
) -> bool {
    view.status.initialization.control_plane_initialized
        && !metadata::is_deleting(cluster)
        && settings.selector.matches(&metadata::labels(cluster))
        && settings.namespace_selector.matches(namespace)
}

/// Returns the Cluster that a Fleet Cluster imports, according to its kubeconfig Secret.
pub fn cluster_of(fleet_cluster: &Value) -> Option<ClusterKey> {
    let secret = fleet_cluster["spec"]["kubeConfigSecret"].as_str()?;
    let name = secret.strip_suffix(KUBECONFIG_SUFFIX)?;
    Some(ClusterKey::new(metadata::namespace(fleet_cluster), name))
}

/// Returns the Fleet Cluster that exists for a Cluster, of those in its namespace: the one with the name that the settings
/// give it, else the first that imports the Cluster, so that no cluster is imported twice after a change of the names.
pub fn existing_fleet_cluster<'a>(
    settings: &ClusterSettings,
    cluster: &ClusterKey,
    all: &'a [Value],
) -> Option<&'a Value> {
    let wanted = settings.name(&cluster.name);
    let named = all.iter().find(|one| metadata::name(one) == wanted);
    let imports = |one: &&Value| cluster_of(one).as_ref() == Some(cluster);
    named.or_else(|| {
        all.iter().filter(imports).min_by(|one, other| metadata::name(one).cmp(metadata::name(other)))
    })
}

/// Returns the Fleet Cluster that is wanted for a Cluster.
///
/// While the Cluster is paused, the Fleet Cluster has no owner: `clusterctl move` deletes paused Clusters, and Fleet would
/// remove the workloads of a Fleet Cluster that is deleted with them.
pub fn fleet_cluster(
    settings: &ClusterSettings,
    handed_over: &HandedOver<'_>,
    existing: Option<&Value>,
) -> Value {
    let HandedOver { cluster, view, .. } = *handed_over;
    let name = metadata::name(cluster);
    let mut labels = metadata::labels(cluster);
    if let Some(class) = class_of(cluster, view) {
        labels.insert(CLASS_NAME_LABEL.to_owned(), class.name);
        labels.insert(CLASS_NAMESPACE_LABEL.to_owned(), class.namespace);
    }
    let fleet_name = existing.map_or_else(|| settings.name(name), |one| metadata::name(one).to_owned());
    let mut object = json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "name": fleet_name, "namespace": metadata::namespace(cluster),
            "labels": labels, "annotations": metadata::annotations(cluster),
        },
        "spec": {
            "kubeConfigSecret": format!("{name}{KUBECONFIG_SUFFIX}"),
            "clientID": client_id(cluster, existing),
            "agentNamespace": settings.agent_namespace,
            "agentTolerations": agent_tolerations(settings, existing),
            "templateValues": template_values(handed_over, existing),
        },
    });
    if settings.owner_references && !view.spec.paused {
        object["metadata"]["ownerReferences"] = json!([metadata::owner_reference(cluster)]);
    }
    if let Some(host_network) = settings.host_network {
        object["spec"]["hostNetwork"] = host_network.into();
    }
    if !settings.agent_env_vars.is_empty() {
        object["spec"]["agentEnvVars"] = json!(settings.agent_env_vars);
    }
    object
}

/// Returns the ID with which the agent registers: the one that the Fleet Cluster has, so that the agent does not have to
/// register again, else a new one. It must not be guessable, because an agent of the same namespace that knows it could
/// register as this cluster.
fn client_id(cluster: &Value, existing: Option<&Value>) -> String {
    let kept = existing.and_then(|one| one["spec"]["clientID"].as_str()).filter(|id| !id.is_empty());
    let new = || Digest::of(format!("fleet client\n{}", metadata::uid(cluster))).hex().to_owned();
    kept.map_or_else(new, str::to_owned)
}

/// Returns the tolerations of the agent: those that the Fleet Cluster has if they differ only in their order, else the wanted
/// ones as Fleet sorts them.
///
/// Fleet 0.16 compares the list with the one that it has installed the agent with, and sorts it in its cache meanwhile. If it
/// then finds another order, it installs the agent again, which has to register again.
fn agent_tolerations(settings: &ClusterSettings, existing: Option<&Value>) -> Value {
    let wanted = sorted_as_fleet(settings.agent_tolerations.clone());
    let kept = existing.map(|one| &one["spec"]["agentTolerations"]).filter(|kept| {
        let tolerations = serde_json::from_value::<Vec<Toleration>>((*kept).clone());
        tolerations.is_ok_and(|tolerations| sorted_as_fleet(tolerations) == wanted)
    });
    kept.cloned().unwrap_or_else(|| json!(wanted))
}

fn sorted_as_fleet(mut tolerations: Vec<Toleration>) -> Vec<Toleration> {
    tolerations.sort_by(|one, other| {
        let texts = |one: &Toleration| {
            [&one.key, &one.value, &one.operator, &one.effect].map(|text| text.clone().unwrap_or_default())
        };
        texts(one).cmp(&texts(other)).then(one.toleration_seconds.cmp(&other.toleration_seconds))
    });
    tolerations
}

fn template_values(handed_over: &HandedOver<'_>, existing: Option<&Value>) -> Value {
    let objects = [
        ("Cluster", TemplateObject::Known(handed_over.cluster)),
        ("ControlPlane", handed_over.control_plane),
        ("InfrastructureCluster", handed_over.infrastructure_cluster),
    ];
    let values = objects.into_iter().filter_map(|(name, object)| {
        let value = match object {
            TemplateObject::None => None,
            TemplateObject::Known(object) => Some(visible_to_fleet(object)),
            TemplateObject::Unknown => {
                existing.map(|one| one["spec"]["templateValues"][name].clone()).filter(|one| !one.is_null())
            }
        };
        Some((name.to_owned(), value?))
    });
    Value::Object(values.collect())
}

/// Returns an object without what changes all the time: status, managed fields and resource version.
fn visible_to_fleet(object: &Value) -> Value {
    let mut object = without_nulls(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

/// The API server does not store nulls, so they would look like a change.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                set.map(|(name, value)| (name.clone(), without_nulls(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
