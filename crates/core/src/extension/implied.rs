//! Instances that nobody wrote: defaults of a cluster, what its template lists, and what other extensions need.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{
    Clusters, ExtensionInstance, ExtensionInstanceSpec, ExtensionReference, IMPLIED_BY_LABEL,
    IMPLIED_SPEC_ANNOTATION, ReleaseTarget,
};
use kube_core::{Resource as _, ResourceExt};

use super::{ExtensionKey, Resolution};
use crate::{digest::Digest, identity::ClusterKey, naming};

/// Why an instance is there that nobody wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its Extension is a default of clusters like this one.
    Default,
    /// The same, and nobody may do without it.
    Enforced,
    /// The Cluster or its template lists it.
    Listed,
    /// Another extension needs it.
    Dependency,
}

impl Origin {
    const ALL: [Self; 4] = [Self::Default, Self::Enforced, Self::Listed, Self::Dependency];

    /// As the label says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Enforced => "Enforced",
            Self::Listed => "Listed",
            Self::Dependency => "Dependency",
        }
    }

    /// Of an instance. None: somebody wrote it.
    pub fn of(instance: &ExtensionInstance) -> Option<Self> {
        let label = instance.labels().get(IMPLIED_BY_LABEL)?;
        Self::ALL.into_iter().find(|origin| origin.as_str() == label)
    }
}

/// An extension that a cluster should have without anybody asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImplicitRequest {
    pub origin: Origin,
    pub extension: ExtensionKey,
    pub range: Option<String>,
    /// Namespace on the workload cluster.
    pub release_namespace: Option<String>,
}

/// What a cluster's instances are measured against.
pub struct Circumstances<'a> {
    pub cluster: &'a ClusterKey,
    /// Defaults and what is listed.
    pub requests: &'a [ImplicitRequest],
    /// What was given to the cluster before: who did away with it does not get it again.
    pub given: &'a BTreeSet<ExtensionKey>,
    /// The instances that select the cluster.
    pub instances: &'a [&'a ExtensionInstance],
    pub resolution: &'a Resolution,
    /// Whether an extension is published: if it is not, nobody can say that it is no default any more.
    pub is_published: &'a dyn Fn(&ExtensionKey) -> bool,
    /// Whether releases of others need that of an instance.
    pub is_needed: &'a dyn Fn(&ExtensionInstance) -> bool,
    /// Whether an instance has its release object on the cluster. One without cannot take a release over.
    pub is_placed: &'a dyn Fn(&ExtensionInstance) -> bool,
}

/// What to do about a cluster's implied instances.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Implied {
    pub apply: Vec<ExtensionInstance>,
    /// Instances that were changed or deleted by somebody and are put right, by name.
    pub restored: Vec<String>,
    pub delete: Vec<String>,
    /// What has been given to the cluster, from now on.
    pub given: BTreeSet<ExtensionKey>,
}

/// Decides about a cluster's implied instances.
pub fn implied(at: &Circumstances<'_>) -> Implied {
    let mut result = Implied::default();
    let mut wanted = BTreeMap::new();
    for request in at.requests {
        wanted.entry(request.extension.clone()).or_insert_with(|| request.clone());
    }
    for (key, request) in &wanted {
        let given_before = at.given.contains(key);
        result.given.insert(key.clone());
        let Some(instance) = decide(at, key, request, given_before) else { continue };
        if given_before {
            result.restored.push(instance.name_any());
        }
        result.apply.push(instance);
    }
    for (name, chosen) in &at.resolution.chosen {
        let key = ExtensionKey::parse(name);
        if !chosen.asked_for && !wanted.contains_key(&key) && providers(at, &key).next().is_none() {
            result.apply.push(generated(at.cluster, &dependency(key)));
        }
    }
    let replaced: BTreeSet<_> = result.apply.iter().map(ResourceExt::name_any).collect();
    let over = at.instances.iter().filter(|one| is_over(at, &wanted, one)).map(|one| one.name_any());
    result.delete = over.filter(|name| !replaced.contains(name)).collect();
    result
}

/// The instance to write for a request, if any.
fn decide(
    at: &Circumstances<'_>,
    key: &ExtensionKey,
    request: &ImplicitRequest,
    given_before: bool,
) -> Option<ExtensionInstance> {
    let instance = generated(at.cluster, request);
    let there = at.instances.iter().find(|there| there.name_any() == instance.name_any());
    let enforced = request.origin == Origin::Enforced;
    match there {
        Some(there) if there.meta().deletion_timestamp.is_some() => None,
        Some(there) if there.spec == instance.spec && Origin::of(there) == Some(request.origin) => None,
        Some(there) => (enforced || !is_adopted(there)).then_some(instance),
        None if enforced => Some(instance),
        None => (!given_before && providers(at, key).next().is_none()).then_some(instance),
    }
}

/// Whether an implied instance has no reason to be there any more. What somebody changed is theirs.
fn is_over(
    at: &Circumstances<'_>,
    wanted: &BTreeMap<ExtensionKey, ImplicitRequest>,
    instance: &ExtensionInstance,
) -> bool {
    let (Some(origin), Some(key)) = (Origin::of(instance), key_of(at, instance)) else { return false };
    if instance.meta().deletion_timestamp.is_some() || origin != Origin::Dependency && is_adopted(instance) {
        return false;
    }
    // A release is handed over only to an object that exists. Until then it would be uninstalled and installed again.
    let not_yet_placed = |other: &ExtensionInstance| {
        other.name_any() != instance.name_any()
            && Origin::of(other) != Some(Origin::Dependency)
            && !(at.is_placed)(other)
    };
    if providers(at, &key).any(not_yet_placed) {
        return false;
    }
    let replaced = || providers(at, &key).any(|other| Origin::of(other) != Some(Origin::Dependency));
    match origin {
        Origin::Dependency => {
            let chosen = at.resolution.chosen.get(&key.to_string());
            replaced() || chosen.is_none_or(|chosen| chosen.asked_for) && !(at.is_needed)(instance)
        }
        Origin::Default | Origin::Enforced | Origin::Listed => {
            let written = || providers(at, &key).any(|other| Origin::of(other).is_none());
            let unwanted = !wanted.contains_key(&key) && (at.is_published)(&key);
            unwanted || origin != Origin::Enforced && written()
        }
    }
}

/// The instances that bring an extension and are not deleting.
fn providers<'a>(
    at: &'a Circumstances<'_>,
    key: &'a ExtensionKey,
) -> impl Iterator<Item = &'a ExtensionInstance> {
    at.instances.iter().copied().filter(move |instance| {
        instance.meta().deletion_timestamp.is_none() && key_of(at, instance).as_ref() == Some(key)
    })
}

fn key_of(at: &Circumstances<'_>, instance: &ExtensionInstance) -> Option<ExtensionKey> {
    let extension = instance.spec.extension.as_ref()?;
    // Whatever the platform's namespace is called.
    Some(ExtensionKey::of(extension, &at.cluster.namespace, ""))
}

fn dependency(extension: ExtensionKey) -> ImplicitRequest {
    ImplicitRequest { origin: Origin::Dependency, extension, range: None, release_namespace: None }
}

/// Whether somebody has changed an implied instance.
fn is_adopted(instance: &ExtensionInstance) -> bool {
    instance.annotations().get(IMPLIED_SPEC_ANNOTATION) != Some(&digest(&instance.spec))
}

/// Name of the implied instance of an extension on a cluster.
pub fn implied_name(extension: &str, cluster: &str) -> String {
    naming::release_object(extension, cluster)
}

fn generated(cluster: &ClusterKey, request: &ImplicitRequest) -> ExtensionInstance {
    let spec = ExtensionInstanceSpec {
        extension: Some(ExtensionReference {
            name: request.extension.name.clone(),
            catalog: request.extension.catalog.clone(),
            scope: request.extension.scope,
        }),
        version: request.range.clone(),
        clusters: Clusters { name: Some(cluster.name.clone()), selector: None },
        release: ReleaseTarget { name: None, namespace: request.release_namespace.clone() },
        ..ExtensionInstanceSpec::default()
    };
    let digest = digest(&spec);
    let mut instance =
        ExtensionInstance::new(&implied_name(&request.extension.local_name(), &cluster.name), spec);
    instance.metadata.namespace = Some(cluster.namespace.clone());
    instance.labels_mut().insert(IMPLIED_BY_LABEL.to_owned(), request.origin.as_str().to_owned());
    instance.annotations_mut().insert(IMPLIED_SPEC_ANNOTATION.to_owned(), digest);
    instance
}

fn digest(spec: &ExtensionInstanceSpec) -> String {
    Digest::of(serde_json::to_string(spec).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{extension::Chosen, resolution::VersionName};

    fn blue() -> ClusterKey {
        ClusterKey::new("fleet", "blue")
    }

    fn request(origin: Origin, name: &str) -> ImplicitRequest {
        ImplicitRequest {
            origin,
            extension: ExtensionKey::in_namespace("system", name, "fleet"),
            range: None,
            release_namespace: None,
        }
    }

    fn chosen(asked_for: bool) -> Chosen {
        Chosen {
            version: VersionName::parse("1.0.0").unwrap(),
            message: String::new(),
            after: Vec::new(),
            asked_for,
        }
    }

    /// Names applied, restored and deleted.
    fn seen(
        requests: &[ImplicitRequest],
        given: &[&str],
        instances: &[&ExtensionInstance],
        resolution: &Resolution,
    ) -> (usize, usize, usize) {
        let given = given.iter().map(|key| ExtensionKey::parse(key)).collect();
        let (cluster, resolution) = (blue(), resolution.clone());
        let result = implied(&Circumstances {
            cluster: &cluster,
            requests,
            given: &given,
            instances,
            resolution: &resolution,
            is_published: &|key| key.to_string() != "platform/unpublished",
            is_needed: &|instance| instance.name_any().starts_with("needed"),
            is_placed: &|instance| !instance.name_any().starts_with("new"),
        });
        (result.apply.len(), result.restored.len(), result.delete.len())
    }

    #[test]
    fn a_default_is_given_once_and_an_enforced_one_comes_back() {
        let none = Resolution::default();
        for (origin, again) in [(Origin::Default, 0), (Origin::Listed, 0), (Origin::Enforced, 1)] {
            let requests = [request(origin, "cni")];
            assert_eq!(seen(&requests, &[], &[], &none), (1, 0, 0), "{origin:?}: new");
            let there = generated(&blue(), &requests[0]);
            assert_eq!(seen(&requests, &["platform/cni"], &[&there], &none), (0, 0, 0), "{origin:?}: there");
            assert_eq!(
                seen(&requests, &["platform/cni"], &[], &none),
                (again, again, 0),
                "{origin:?}: deleted"
            );
            let mut changed = there.clone();
            changed.spec.version = Some("1.x".to_owned());
            let found = seen(&requests, &["platform/cni"], &[&changed], &none);
            assert_eq!(found, (again, again, 0), "{origin:?}: changed");
        }
    }

    #[test]
    fn removing_a_default_removes_nothing_that_is_adopted() {
        let none = Resolution::default();
        let mut there = generated(&blue(), &request(Origin::Default, "cni"));
        assert_eq!(seen(&[], &["platform/cni"], &[&there], &none), (0, 0, 1));
        there.spec.version = Some("1.x".to_owned());
        assert_eq!(seen(&[], &["platform/cni"], &[&there], &none), (0, 0, 0));
    }

    #[test]
    fn what_is_not_published_any_more_or_still_needed_stays() {
        let none = Resolution::default();
        let there = generated(&blue(), &request(Origin::Default, "unpublished"));
        assert_eq!(seen(&[], &[], &[&there], &none), (0, 0, 0));
        let there = generated(&blue(), &request(Origin::Dependency, "needed"));
        assert_eq!(seen(&[], &[], &[&there], &none), (0, 0, 0));
    }

    #[test]
    fn who_asks_for_a_default_gets_no_second_one() {
        let mut own = generated(&blue(), &request(Origin::Default, "cni"));
        own.metadata.name = Some("mine".to_owned());
        own.metadata.labels = None;
        let none = Resolution::default();
        assert_eq!(seen(&[request(Origin::Default, "cni")], &[], &[&own], &none), (0, 0, 0));
        let given = generated(&blue(), &request(Origin::Default, "cni"));
        let found = seen(&[request(Origin::Default, "cni")], &["platform/cni"], &[&own, &given], &none);
        assert_eq!(found, (0, 0, 1), "what somebody wrote takes its place");
        own.metadata.name = Some("new".to_owned());
        let found = seen(&[request(Origin::Default, "cni")], &["platform/cni"], &[&own, &given], &none);
        assert_eq!(found, (0, 0, 0), "not before it has a release object to take the release over");
    }

    #[test]
    fn what_is_needed_is_there_as_long_as_it_is_needed() {
        let needed = Resolution {
            chosen: BTreeMap::from([("platform/db".to_owned(), chosen(false))]),
            ..Resolution::default()
        };
        assert_eq!(seen(&[], &[], &[], &needed), (1, 0, 0));
        let there = generated(&blue(), &request(Origin::Dependency, "db"));
        assert_eq!(seen(&[], &[], &[&there], &needed), (0, 0, 0));
        assert_eq!(seen(&[], &[], &[&there], &Resolution::default()), (0, 0, 1));
        let mut own = there.clone();
        own.metadata.name = Some("mine".to_owned());
        own.metadata.labels = None;
        let asked = Resolution {
            chosen: BTreeMap::from([("platform/db".to_owned(), chosen(true))]),
            ..Resolution::default()
        };
        assert_eq!(seen(&[], &[], &[&there, &own], &asked), (0, 0, 1));
        own.metadata.name = Some("new".to_owned());
        assert_eq!(seen(&[], &[], &[&there, &own], &asked), (0, 0, 0), "it has no release object yet");
    }
}
