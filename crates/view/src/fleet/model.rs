//! Placements and releases, read off objects of any of their kinds. Values and other large or secret parts are left out.

use chandler_api::{
    reasons::{PlacementReason, ReleaseReason},
    status::{PlacementStatus, ReleaseStatus},
};
use chandler_core::{backoff, failure::Category};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::{ResourceExt as _, api::DynamicObject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::kinds::Kind;

/// Names an object for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectName {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// An object that puts a package on clusters.
#[derive(Clone, Debug)]
pub struct Placement {
    pub object: ObjectName,
    pub package: String,
    /// The version that is asked for.
    pub version: Option<String>,
    pub deleted: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub status: PlacementStatus,
}

/// One package on one cluster.
#[derive(Clone, Debug)]
pub struct Release {
    pub object: ObjectName,
    pub uid: String,
    /// Kind and name of the placement that made it.
    pub placement: Option<(String, String)>,
    pub cluster: String,
    pub package: String,
    /// The version that is asked for.
    pub wanted_version: Option<String>,
    /// Namespace and name on the workload cluster, joined by `/`.
    pub address: String,
    pub generation: Option<i64>,
    pub deleted: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub status: ReleaseStatus,
}

impl Placement {
    pub fn of(kind: &Kind, object: &DynamicObject) -> Self {
        let Parts { name, deleted, finalizers, .. } = parts(kind, object);
        Self {
            object: name,
            package: first(object, kind.package).unwrap_or_default(),
            version: first(object, &[kind.version]),
            deleted,
            finalizers,
            status: status(object, |condition| PlacementStatus {
                conditions: vec![condition],
                ..PlacementStatus::default()
            }),
        }
    }

    pub fn ready(&self) -> Option<&Condition> {
        condition(&self.status.conditions, "Ready")
    }

    /// Why it is not ready. Returns `None` if it is, or if this version does not know the reason.
    pub fn reason(&self) -> Option<PlacementReason> {
        PlacementReason::parse(&not_ready(self.ready())?.reason)
    }
}

impl Release {
    pub fn of(kind: &Kind, object: &DynamicObject) -> Self {
        let Parts { name, uid, generation, deleted, finalizers } = parts(kind, object);
        let (namespace, release) = kind.release;
        Self {
            placement: owner(object).map(|owner| (owner.kind.clone(), owner.name.clone())),
            cluster: first(object, &[kind.cluster]).unwrap_or_default(),
            package: first(object, kind.package).unwrap_or_default(),
            wanted_version: first(object, &[kind.version]),
            address: format!(
                "{}/{}",
                first(object, &[namespace]).unwrap_or_else(|| "default".to_owned()),
                first(object, &[release]).unwrap_or_default()
            ),
            object: name,
            uid,
            generation,
            deleted,
            finalizers,
            status: status(object, |condition| ReleaseStatus {
                conditions: vec![condition],
                ..ReleaseStatus::default()
            }),
        }
    }

    pub fn ready(&self) -> Option<&Condition> {
        condition(&self.status.conditions, "Ready")
    }

    /// Why it is not ready. Returns `None` if it is, or if this version does not know the reason.
    pub fn reason(&self) -> Option<ReleaseReason> {
        ReleaseReason::parse(&not_ready(self.ready())?.reason)
    }

    /// What people call it: the name of its placement, or its own.
    pub fn add_on(&self) -> &str {
        self.placement.as_ref().map_or(&self.object.name, |(_, name)| name)
    }

    /// The version that is there, or the one that is asked for.
    pub fn version(&self) -> Option<&str> {
        let found = self.status.package.as_ref().map(|package| package.version.as_str());
        found.or(self.wanted_version.as_deref())
    }

    /// When the manager tries again after the last failure.
    pub fn next_try(&self) -> Option<Timestamp> {
        let failure = self.status.last_failure.as_ref()?;
        let wait = backoff::delay(Category::parse(&failure.category), failure.count, &self.uid);
        failure.at.0.checked_add(wait).ok()
    }
}

fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn not_ready(ready: Option<&Condition>) -> Option<&Condition> {
    ready.filter(|ready| ready.status != "True")
}

/// What every object has.
struct Parts {
    name: ObjectName,
    uid: String,
    generation: Option<i64>,
    deleted: Option<Timestamp>,
    finalizers: Vec<String>,
}

fn parts(kind: &Kind, object: &DynamicObject) -> Parts {
    Parts {
        name: ObjectName {
            kind: kind.name.to_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        },
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        deleted: object.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finalizers: object.finalizers().to_vec(),
    }
}

fn owner(object: &DynamicObject) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// The first text that is there and not empty.
fn first(object: &DynamicObject, pointers: &[&str]) -> Option<String> {
    let at = |pointer: &&str| match *pointer {
        "/metadata/name" => object.metadata.name.clone(),
        pointer => object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
    };
    pointers.iter().filter_map(at).find(|text| !text.is_empty())
}

/// The status; one that cannot be read says so as a condition would.
fn status<S: DeserializeOwned + Default>(object: &DynamicObject, said: impl Fn(Condition) -> S) -> S {
    let Some(status) = object.data.get("status") else { return S::default() };
    S::deserialize(status).unwrap_or_else(|error| {
        said(Condition {
            type_: "Ready".to_owned(),
            status: "Unknown".to_owned(),
            reason: ReleaseReason::StatusUnreadable.as_str().to_owned(),
            message: format!("its status is not as Chandler writes it: {error}"),
            observed_generation: None,
            last_transition_time: object.creation_timestamp().unwrap_or(Time(Timestamp::UNIX_EPOCH)),
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::kinds::KINDS;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn releases_of_both_kinds_read_alike() {
        let meta = |kind: &str| {
            json!({"name": "hello-alpha", "namespace": "fleet", "ownerReferences": [
                {"apiVersion": "v1", "kind": kind, "name": "hello", "uid": "u", "controller": true}]})
        };
        let proxy = object(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": meta("HelmChartProxy"),
            "spec": {"clusterRef": {"name": "alpha"}, "chartName": "hello", "releaseName": "hi", "namespace": ""},
            "status": {"package": {"reference": "", "version": "1.2.3", "digest": ""}},
        }));
        let release = Release::of(&KINDS[2], &proxy);
        assert_eq!((&*release.cluster, &*release.package), ("alpha", "hello"));
        assert_eq!((&*release.address, release.version()), ("default/hi", Some("1.2.3")));
        assert_eq!(release.add_on(), "hello");

        let addon = object(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonRelease",
            "metadata": meta("ExtensionInstance"),
            "spec": {"cluster": "alpha", "release": {"name": "hi", "namespace": "there"}, "version": "1.0.0"},
        }));
        let release = Release::of(&KINDS[3], &addon);
        assert_eq!((&*release.cluster, &*release.package), ("alpha", "hello-alpha"));
        assert_eq!((&*release.address, release.version()), ("there/hi", Some("1.0.0")));
        assert_eq!(release.placement, Some(("ExtensionInstance".to_owned(), "hello".to_owned())));
    }

    #[test]
    fn a_status_that_cannot_be_read_says_so() {
        let odd = object(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {"name": "odd"}, "spec": {}, "status": {"revision": "one"},
        }));
        let release = Release::of(&KINDS[2], &odd);
        assert_eq!(release.ready().unwrap().reason, "StatusUnreadable");
    }
}
