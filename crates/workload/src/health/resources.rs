//! The names of kinds in the paths of requests.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use http::Request;
use k8s_openapi::{
    Resource,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::{CronJob, Job},
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Endpoints, LimitRange, Namespace, PersistentVolume, PersistentVolumeClaim, Pod,
            ResourceQuota, Secret, Service, ServiceAccount,
        },
        networking::v1::{Ingress, IngressClass, NetworkPolicy},
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        scheduling::v1::PriorityClass,
        storage::v1::{CSIDriver, StorageClass},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use serde::Deserialize;

use super::kind::ObjectKind;
use crate::{
    pages::{Items, parse, parse_page},
    request::ClusterClient,
    watch_error::WatchError,
};

/// API version, kind and name of a kind that every cluster serves under the same name.
type BuiltIn = (&'static str, &'static str, &'static str);

/// The kinds of most packages. Discovery would answer the same, with one more request for each group and cluster.
const BUILT_IN: [BuiltIn; 34] = [
    built_in::<MutatingWebhookConfiguration>(),
    built_in::<ValidatingWebhookConfiguration>(),
    built_in::<DaemonSet>(),
    built_in::<Deployment>(),
    built_in::<ReplicaSet>(),
    built_in::<StatefulSet>(),
    built_in::<HorizontalPodAutoscaler>(),
    built_in::<CronJob>(),
    built_in::<Job>(),
    built_in::<Lease>(),
    built_in::<ConfigMap>(),
    built_in::<Endpoints>(),
    built_in::<LimitRange>(),
    built_in::<Namespace>(),
    built_in::<PersistentVolume>(),
    built_in::<PersistentVolumeClaim>(),
    built_in::<Pod>(),
    built_in::<ResourceQuota>(),
    built_in::<Secret>(),
    built_in::<Service>(),
    built_in::<ServiceAccount>(),
    built_in::<Ingress>(),
    built_in::<IngressClass>(),
    built_in::<NetworkPolicy>(),
    built_in::<PodDisruptionBudget>(),
    built_in::<ClusterRole>(),
    built_in::<ClusterRoleBinding>(),
    built_in::<Role>(),
    built_in::<RoleBinding>(),
    built_in::<PriorityClass>(),
    built_in::<CSIDriver>(),
    built_in::<StorageClass>(),
    built_in::<CustomResourceDefinition>(),
    built_in::<APIService>(),
];

const fn built_in<K: Resource>() -> BuiltIn {
    (K::API_VERSION, K::KIND, K::URL_PATH_SEGMENT)
}

/// The path of a kind's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    /// The path of its group and version.
    group: String,
    plural: String,
}

impl ResourcePath {
    /// Returns the path of the objects in all namespaces.
    pub fn all(&self) -> String {
        format!("{}/{}", self.group, self.plural)
    }

    /// Returns the path of the objects in a namespace. Objects of the cluster have an empty one.
    pub fn in_namespace(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            return self.all();
        }
        format!("{}/namespaces/{namespace}/{}", self.group, self.plural)
    }
}

/// The names of the kinds of a group and version.
type Names = Arc<BTreeMap<String, String>>;

/// The names that a cluster serves kinds under. Each group and version is read once.
#[derive(Debug, Default)]
pub struct Resources {
    discovered: Mutex<HashMap<String, Names>>,
}

impl Resources {
    /// Returns the path of a kind's objects.
    pub async fn path(&self, client: &ClusterClient, kind: &ObjectKind) -> Result<ResourcePath, WatchError> {
        let group = kind.group_path().ok_or(WatchError::NotServed)?;
        let is_kind =
            |(api_version, name, _): &&BuiltIn| *api_version == kind.api_version && *name == kind.kind;
        if let Some((_, _, plural)) = BUILT_IN.iter().find(is_kind) {
            return Ok(ResourcePath { group, plural: (*plural).to_owned() });
        }
        // A kind that was not served may have been installed since.
        let known =
            self.lock().get(&kind.api_version).filter(|names| names.contains_key(&kind.kind)).cloned();
        let names = match known {
            Some(names) => names,
            None => self.discover(client, kind, &group).await?,
        };
        let plural = names.get(&kind.kind).ok_or(WatchError::NotServed)?.clone();
        Ok(ResourcePath { group, plural })
    }

    async fn discover(
        &self,
        client: &ClusterClient,
        kind: &ObjectKind,
        group: &str,
    ) -> Result<Names, WatchError> {
        let request = Request::get(group).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let text = client.read(request).await?;
        let names: Names = Arc::new(names(&text)?);
        self.lock().insert(kind.api_version.clone(), names.clone());
        Ok(names)
    }

    /// Forgets what was read about a kind's group and version, which may have changed since.
    pub fn forget(&self, kind: &ObjectKind) {
        self.lock().remove(&kind.api_version);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Names>> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of kinds of a group and version that are remembered, and of bytes of a name. API servers allow no longer ones.
const MAX_KINDS: usize = 500;
const MAX_NAME: usize = 63;
/// Maximum size of the description of a kind.
const MAX_RESOURCE: usize = 16 << 10;

#[derive(Deserialize)]
struct ResourceList<'a> {
    #[serde(borrow, default)]
    resources: Items<'a>,
}

#[derive(Deserialize)]
struct NamedKind {
    name: String,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Returns the names of the kinds that can be listed and watched.
fn names(text: &[u8]) -> Result<BTreeMap<String, String>, WatchError> {
    let list: ResourceList<'_> = parse_page(text)?;
    let is_usable = |one: &NamedKind| {
        !one.name.contains('/')
            && one.name.len().max(one.kind.len()) <= MAX_NAME
            && ["list", "watch"].iter().all(|verb| one.verbs.iter().any(|v| v == verb))
    };
    let short = list.resources.as_slice().iter().filter(|item| item.get().len() <= MAX_RESOURCE);
    let kinds = short.filter_map(|item| parse::<NamedKind>(item).ok()).filter(is_usable);
    Ok(kinds.take(MAX_KINDS).map(|one| (one.kind, one.name)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_that_can_be_watched_are_read_and_their_number_is_limited() {
        let resource = |name: &str, kind: &str, verbs: &[&str]| json!({"name": name, "kind": kind, "namespaced": true, "verbs": verbs, "shortNames": ["s"]});
        let all = ["get", "list", "watch"];
        let long = "x".repeat(MAX_NAME + 1);
        let list = json!({"kind": "APIResourceList", "groupVersion": "example.dev/v1", "resources": [
            resource("widgets", "Widget", &all), resource("widgets/status", "Widget", &all),
            resource("reviews", "Review", &["create"]), resource(&long, "Long", &all), {},
        ]});
        let expected = BTreeMap::from([("Widget".to_owned(), "widgets".to_owned())]);
        assert_eq!(names(list.to_string().as_bytes()).unwrap(), expected);
        let many = |count: usize| {
            let kinds = (0..count).map(|n| resource(&format!("k{n}"), &format!("K{n}"), &all));
            names(json!({"resources": kinds.collect::<Vec<_>>()}).to_string().as_bytes())
        };
        assert_eq!(many(MAX_KINDS + 1).unwrap().len(), MAX_KINDS);
        assert!(many(10_000).is_err());
    }

    #[test]
    fn each_built_in_kind_is_listed_once() {
        let mut kinds: Vec<_> = BUILT_IN.iter().map(|(api_version, kind, _)| (api_version, kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), BUILT_IN.len());
        assert!(BUILT_IN.contains(&("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")));
    }

    #[test]
    fn the_path_of_objects_names_their_namespace() {
        let path = ResourcePath { group: "/apis/apps/v1".to_owned(), plural: "deployments".to_owned() };
        assert_eq!(path.all(), "/apis/apps/v1/deployments");
        assert_eq!(path.in_namespace("shop"), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(path.in_namespace(""), path.all());
    }
}
