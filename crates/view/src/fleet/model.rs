//! Placements and releases, built from objects of any of their kinds. Values and other large or secret fields are left
//! out.

use std::fmt;

use chandler_api::{
    extensions::{Reference, SourceProgress, SourceRef},
    reasons::{PlacementReason, ReleaseReason},
    status::{PlacementStatus, ReleaseStatus},
};
use chandler_core::{
    backoff, conditions,
    failure::Category,
    policy::{is_suspended, policy_of, reference_text},
    rollout::RolloutRequests,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::{ResourceExt as _, api::DynamicObject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::kinds::{Kind, Model, find_kinds};

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectName {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// For example `HelmChartProxy fleet/hello`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl ObjectName {
    /// Returns the `KIND/NAME` argument of commands that names this object.
    pub fn argument(&self) -> String {
        let kind = find_kinds(&self.kind).first().map_or(self.kind.as_str(), |kind| kind.short_name());
        format!("{kind}/{}", self.name)
    }
}

/// An object that installs a package on the clusters that it selects.
#[derive(Clone, Debug)]
pub struct Placement {
    pub object: ObjectName,
    pub package: String,
    /// The requested version.
    pub version: Option<String>,
    /// The AddonPolicy that it refers to.
    pub policy: Option<Reference>,
    /// Whether its own annotation suspends it.
    pub suspended: bool,
    /// What users have asked for about its rollout.
    pub rollout: RolloutRequests,
    pub generation: Option<i64>,
    pub deletion_timestamp: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub status: PlacementStatus,
    /// Which clusters have which revisions of Sources.
    pub sources: Vec<SourceProgress>,
}

/// A package on one cluster.
#[derive(Clone, Debug)]
pub struct Release {
    pub object: ObjectName,
    pub uid: String,
    /// Kind and name of the placement that controls it.
    pub placement: Option<(String, String)>,
    pub cluster: String,
    pub package: String,
    /// The requested version.
    pub requested_version: Option<String>,
    /// Namespace and name of the release on the workload cluster, joined by `/`.
    pub release_name: String,
    pub generation: Option<i64>,
    /// Whether its own annotation suspends it. Its placement and its policy can suspend it, too.
    pub suspended: bool,
    pub deletion_timestamp: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub status: ReleaseStatus,
    /// The folder of a Source that its package is made of.
    pub folder: Option<PackageFolder>,
}

/// A folder of a Source, and the revision at which a package was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFolder {
    pub source: SourceRef,
    /// The tag that is used instead of the revision of the Source.
    pub tag: Option<String>,
    pub path: String,
    pub revision: String,
}

impl Placement {
    pub fn from_object(kind: &Kind, object: &DynamicObject) -> Self {
        let Metadata { name, generation, deletion_timestamp, finalizers, .. } = metadata(kind, object);
        Self {
            object: name,
            package: first_string(object, kind.package).unwrap_or_default(),
            version: first_string(object, &[kind.version]),
            policy: policy(kind, object),
            suspended: is_suspended(object),
            rollout: RolloutRequests::of(object),
            generation,
            deletion_timestamp,
            finalizers,
            status: status(object, |condition| PlacementStatus {
                conditions: vec![condition],
                ..PlacementStatus::default()
            }),
            sources: parsed(object, "/status/sources").unwrap_or_default(),
        }
    }

    /// Returns the `Ready` condition.
    pub fn ready(&self) -> Option<&Condition> {
        conditions::find(&self.status.conditions, "Ready")
    }

    /// Returns why it is not ready. Returns `None` if it is ready or the reason is unknown to this version.
    pub fn reason(&self) -> Option<PlacementReason> {
        PlacementReason::parse(&not_ready(self.ready())?.reason)
    }

    /// Returns the name of its policy as the annotation of a HelmChartProxy names it: `NAME` or `platform/NAME`.
    pub fn policy_name(&self) -> Option<String> {
        self.policy.as_ref().map(reference_text)
    }
}

impl Release {
    pub fn from_object(kind: &Kind, object: &DynamicObject) -> Self {
        let Metadata { name, uid, generation, deletion_timestamp, finalizers } = metadata(kind, object);
        let (namespace, release) = kind.release;
        Self {
            placement: controller(object).map(|owner| (owner.kind.clone(), owner.name.clone())),
            cluster: first_string(object, &[kind.cluster]).unwrap_or_default(),
            package: first_string(object, kind.package).unwrap_or_default(),
            requested_version: first_string(object, &[kind.version]),
            release_name: format!(
                "{}/{}",
                first_string(object, &[namespace]).unwrap_or_else(|| "default".to_owned()),
                first_string(object, &[release]).unwrap_or_default()
            ),
            object: name,
            uid,
            generation,
            suspended: is_suspended(object),
            deletion_timestamp,
            finalizers,
            status: status(object, |condition| ReleaseStatus {
                conditions: vec![condition],
                ..ReleaseStatus::default()
            }),
            folder: folder(object),
        }
    }

    /// Returns the `Ready` condition.
    pub fn ready(&self) -> Option<&Condition> {
        self.condition("Ready")
    }

    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.status.conditions, type_)
    }

    /// Returns why it is not ready. Returns `None` if it is ready or the reason is unknown to this version.
    pub fn reason(&self) -> Option<ReleaseReason> {
        ReleaseReason::parse(&not_ready(self.ready())?.reason)
    }

    /// Returns whether this placement controls it.
    pub fn belongs_to(&self, placement: &Placement) -> bool {
        let ObjectName { kind, namespace, name } = &placement.object;
        self.object.namespace == *namespace
            && self.placement.as_ref().is_some_and(|owner| (&owner.0, &owner.1) == (kind, name))
    }

    /// Returns the name of the placement, or its own name if it has no placement.
    pub fn add_on(&self) -> &str {
        self.placement.as_ref().map_or(&self.object.name, |(_, name)| name)
    }

    /// Returns the installed version, or the requested version if none is installed.
    pub fn version(&self) -> Option<&str> {
        let installed = self.status.package.as_ref().map(|package| package.version.as_str());
        installed.or(self.requested_version.as_deref())
    }

    /// Returns when the manager retries after the last failure. `None` means that it does not retry.
    pub fn next_retry(&self) -> Option<Timestamp> {
        let waits_for_user = matches!(
            self.reason(),
            Some(
                ReleaseReason::RetriesExhausted
                    | ReleaseReason::Stalled
                    | ReleaseReason::RolledBack
                    | ReleaseReason::Suspended
                    | ReleaseReason::PolicyNotFound
            )
        );
        if waits_for_user {
            return None;
        }
        let failure = self.status.last_failure.as_ref()?;
        let wait = backoff::delay(Category::parse(&failure.category), failure.count, &self.uid);
        failure.at.0.checked_add(wait).ok()
    }
}

fn not_ready(ready: Option<&Condition>) -> Option<&Condition> {
    ready.filter(|ready| ready.status != "True")
}

/// The fields of the metadata that both models use.
struct Metadata {
    name: ObjectName,
    uid: String,
    generation: Option<i64>,
    deletion_timestamp: Option<Timestamp>,
    finalizers: Vec<String>,
}

fn metadata(kind: &Kind, object: &DynamicObject) -> Metadata {
    Metadata {
        name: ObjectName {
            kind: kind.name.to_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        },
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        deletion_timestamp: object.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finalizers: object.finalizers().to_vec(),
    }
}

fn controller(object: &DynamicObject) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Returns the AddonPolicy that a placement refers to.
fn policy(kind: &Kind, object: &DynamicObject) -> Option<Reference> {
    let Model::Placement(name) = kind.model else { return None };
    policy_of(name, object.annotations(), parsed(object, "/spec/policyRef"))
}

/// Returns the folder of a release whose package is made of one.
fn folder(object: &DynamicObject) -> Option<PackageFolder> {
    Some(PackageFolder {
        source: parsed(object, "/spec/source/sourceRef")?,
        tag: first_string(object, &["/spec/source/version"]),
        path: first_string(object, &["/spec/source/path"]).unwrap_or_default(),
        revision: first_string(object, &["/spec/pinned/revision"])?,
    })
}

/// Returns a field. `None` if it is absent or of another type.
fn parsed<T: DeserializeOwned>(object: &DynamicObject, pointer: &str) -> Option<T> {
    T::deserialize(object.data.pointer(pointer)?).ok()
}

/// Returns the first of the fields that is a non-empty string.
fn first_string(object: &DynamicObject, pointers: &[&str]) -> Option<String> {
    let at = |pointer: &&str| match *pointer {
        "/metadata/name" => object.metadata.name.clone(),
        pointer => object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
    };
    pointers.iter().filter_map(at).find(|text| !text.is_empty())
}

/// Returns the status. If it cannot be deserialized, returns one whose `Ready` condition reports the error.
fn status<S: DeserializeOwned + Default>(
    object: &DynamicObject,
    with_condition: impl Fn(Condition) -> S,
) -> S {
    let Some(status) = object.data.get("status") else { return S::default() };
    S::deserialize(status).unwrap_or_else(|error| {
        with_condition(Condition {
            type_: "Ready".to_owned(),
            status: "Unknown".to_owned(),
            reason: ReleaseReason::StatusUnreadable.as_str().to_owned(),
            message: format!("the status cannot be parsed: {error}"),
            observed_generation: None,
            last_transition_time: object.creation_timestamp().unwrap_or(Time(Timestamp::UNIX_EPOCH)),
        })
    })
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::Scope;
    use serde_json::json;

    use super::*;
    use crate::fleet::kinds::KINDS;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn both_release_kinds_have_the_same_model() {
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
        let release = Release::from_object(&KINDS[2], &proxy);
        assert_eq!((&*release.cluster, &*release.package), ("alpha", "hello"));
        assert_eq!((&*release.release_name, release.version()), ("default/hi", Some("1.2.3")));
        assert_eq!(release.folder, None);
        assert_eq!(release.add_on(), "hello");

        let addon = object(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonRelease",
            "metadata": meta("ExtensionInstance"),
            "spec": {
                "cluster": "alpha", "release": {"name": "hi", "namespace": "there"}, "version": "1.0.0",
                "source": {"sourceRef": {"name": "apps"}, "path": "hello"},
                "pinned": {"revision": "c1", "digest": "sha256:00"},
            },
        }));
        let release = Release::from_object(&KINDS[3], &addon);
        assert_eq!((&*release.cluster, &*release.package), ("alpha", "hello-alpha"));
        assert_eq!((&*release.release_name, release.version()), ("there/hi", Some("1.0.0")));
        assert_eq!(release.placement, Some(("ExtensionInstance".to_owned(), "hello".to_owned())));
        let folder = release.folder.unwrap();
        assert_eq!((&*folder.source.name, &*folder.path, &*folder.revision), ("apps", "hello", "c1"));
    }

    #[test]
    fn policies_are_found_in_the_annotation_or_in_the_spec() {
        let by_annotation = |value: &str| {
            let chart = object(json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": {"name": "hello", "annotations": {"chandler.dev/policy": value, "chandler.dev/suspend": "true"}},
                "spec": {},
            }));
            let placement = Placement::from_object(&KINDS[0], &chart);
            assert!(placement.suspended);
            placement.policy
        };
        let reference = |name: &str, scope| Some(Reference { name: name.to_owned(), scope });
        assert_eq!(by_annotation("careful"), reference("careful", Scope::Namespace));
        assert_eq!(by_annotation("platform/careful"), reference("careful", Scope::Platform));
        assert_eq!(by_annotation(""), None);
        let by_spec = |spec: Value| {
            let instance = object(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance", "spec": spec,
                "metadata": {"name": "hello", "annotations": {"chandler.dev/policy": "ignored"}},
            }));
            let placement = Placement::from_object(&KINDS[1], &instance);
            assert!(!placement.suspended);
            placement
        };
        let placement = by_spec(json!({"policyRef": {"name": "careful", "scope": "Platform"}}));
        assert_eq!(placement.policy, reference("careful", Scope::Platform));
        assert_eq!(placement.policy_name().as_deref(), Some("platform/careful"));
        assert_eq!(by_spec(json!({})).policy, None, "the annotation of an ExtensionInstance has no effect");
    }

    #[test]
    fn an_invalid_status_becomes_a_condition() {
        let invalid = object(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {"name": "invalid"}, "spec": {}, "status": {"revision": "one"},
        }));
        let release = Release::from_object(&KINDS[2], &invalid);
        assert_eq!(release.ready().unwrap().reason, "StatusUnreadable");
    }
}
