//! ExtensionInstances that Chandler creates by itself: defaults of a cluster, extensions that the Cluster or its
//! ClusterClass lists, and dependencies of other extensions.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{
    Clusters, ExtensionInstance, ExtensionInstanceSpec, ExtensionReference, IMPLIED_BY_LABEL,
    IMPLIED_SPEC_ANNOTATION, ReleaseTarget,
};
use kube_core::{Resource as _, ResourceExt};

use super::{ExtensionKey, Resolution};
use crate::{digest::Digest, identity::ClusterKey, naming, parameters::Parameters};

/// Why Chandler created an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The Extension is a default for the cluster.
    Default,
    /// The Extension is an enforced default for the cluster: Chandler reverts changes and deletion by users.
    Enforced,
    /// The Cluster or its ClusterClass lists the extension.
    Listed,
    /// Another extension depends on it.
    Dependency,
}

impl Origin {
    const ALL: [Self; 4] = [Self::Default, Self::Enforced, Self::Listed, Self::Dependency];

    /// Returns the value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Enforced => "Enforced",
            Self::Listed => "Listed",
            Self::Dependency => "Dependency",
        }
    }

    /// Returns the origin of an instance, or `None` if a user created it.
    pub fn of(instance: &ExtensionInstance) -> Option<Self> {
        let label = instance.labels().get(IMPLIED_BY_LABEL)?;
        Self::ALL.into_iter().find(|origin| origin.as_str() == label)
    }
}

/// A request for an extension that no user has created an instance for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImplicitRequest {
    pub origin: Origin,
    pub extension: ExtensionKey,
    pub range: Option<String>,
    /// Namespace on the workload cluster.
    pub release_namespace: Option<String>,
    pub parameters: Option<Parameters>,
    /// Parameters as YAML with templates.
    pub parameters_template: Option<String>,
}

impl ImplicitRequest {
    /// Returns a request for any version, without parameters.
    pub fn new(origin: Origin, extension: ExtensionKey) -> Self {
        Self {
            origin,
            extension,
            range: None,
            release_namespace: None,
            parameters: None,
            parameters_template: None,
        }
    }
}

/// The input of [`implicit_changes`].
pub struct ImplicitInput<'a> {
    pub cluster: &'a ClusterKey,
    /// Defaults and listed extensions. Of several requests for an extension, an enforced one counts, or else the first. An
    /// enforced one without a version gets that of the first other one.
    pub requests: &'a [ImplicitRequest],
    /// Extensions that Chandler has installed on the cluster before. If a user deleted one, it is not created again,
    /// unless it is enforced.
    pub provisioned: &'a BTreeSet<ExtensionKey>,
    /// The instances that select the cluster.
    pub instances: &'a [&'a ExtensionInstance],
    pub resolution: &'a Resolution,
    /// Whether the versions of an extension of the cluster cannot be read. Then it is unknown which dependencies are obsolete.
    pub has_unread: bool,
    /// Returns whether an extension is published. If it is not, it is unknown whether it is still a default.
    pub is_published: &'a dyn Fn(&ExtensionKey) -> bool,
    /// Returns whether other releases depend on the release of an instance.
    pub is_needed: &'a dyn Fn(&ExtensionInstance) -> bool,
    /// Returns whether an instance has a release object for the cluster. Without one it cannot take a release over.
    pub is_placed: &'a dyn Fn(&ExtensionInstance) -> bool,
}

/// The changes to the implicit instances of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImplicitChanges {
    pub apply: Vec<ExtensionInstance>,
    /// Names of the instances in `apply` that a user had changed or deleted.
    pub restored: Vec<String>,
    /// Names of the instances in `apply` that do not exist and may have existed before: enforced ones of extensions in
    /// [`ImplicitInput::provisioned`], and all dependencies, which are not recorded there.
    pub maybe_recreated: Vec<String>,
    pub delete: Vec<String>,
    /// The new value of [`ImplicitInput::provisioned`].
    pub provisioned: BTreeSet<ExtensionKey>,
}

/// Decides which implicit instances of a cluster to apply and to delete.
pub fn implicit_changes(input: &ImplicitInput<'_>) -> ImplicitChanges {
    let mut result = ImplicitChanges::default();
    let requested = effective_requests(input);
    for (key, request) in &requested {
        let provisioned_before = input.provisioned.contains(key);
        result.provisioned.insert(key.clone());
        let Some(instance) = instance_to_apply(input, key, request, provisioned_before) else { continue };
        let existing = existing(input, &instance);
        if provisioned_before && existing.is_none_or(is_modified) {
            result.restored.push(instance.name_any());
        }
        if provisioned_before && existing.is_none() {
            result.maybe_recreated.push(instance.name_any());
        }
        result.apply.push(instance);
    }
    for (name, chosen) in &input.resolution.chosen {
        let key = ExtensionKey::parse(name);
        if !chosen.requested && !requested.contains_key(&key) && providers(input, &key).next().is_none() {
            let instance = generated(input.cluster, &ImplicitRequest::new(Origin::Dependency, key));
            if existing(input, &instance).is_none() {
                result.maybe_recreated.push(instance.name_any());
            }
            result.apply.push(instance);
        }
    }
    let replaced: BTreeSet<_> = result.apply.iter().map(ResourceExt::name_any).collect();
    let obsolete = input.instances.iter().filter(|instance| is_obsolete(input, &requested, instance));
    let obsolete = obsolete.map(|instance| instance.name_any());
    result.delete = obsolete.filter(|name| !replaced.contains(name)).collect();
    result
}

/// Returns the request that counts for each extension.
fn effective_requests(input: &ImplicitInput<'_>) -> BTreeMap<ExtensionKey, ImplicitRequest> {
    let mut requested: BTreeMap<_, ImplicitRequest> = BTreeMap::new();
    let (enforced, others): (Vec<_>, Vec<_>) =
        input.requests.iter().partition(|request| request.origin == Origin::Enforced);
    for request in enforced.into_iter().chain(others) {
        let effective = requested.entry(request.extension.clone()).or_insert_with(|| request.clone());
        // Enforced defaults state no version. A Cluster that lists the extension chooses it.
        if effective.range.is_none() && effective.origin == Origin::Enforced {
            effective.range.clone_from(&request.range);
        }
    }
    for request in requested.values_mut() {
        request.release_namespace = release_namespace(input, request);
    }
    requested
}

/// Returns the namespace of the release: the one that an existing implicit instance was generated with, because a release
/// in another namespace would be another one, for which this one is uninstalled.
fn release_namespace(input: &ImplicitInput<'_>, request: &ImplicitRequest) -> Option<String> {
    let name = implicit_instance_name(&request.extension.local_name(), &input.cluster.name);
    let existing = input.instances.iter().find(|existing| {
        existing.name_any() == name
            && Origin::of(existing).is_some()
            && existing.meta().deletion_timestamp.is_none()
    });
    let Some(existing) = existing else { return request.release_namespace.clone() };
    let current = existing.spec.release.namespace.clone();
    let recorded = existing.annotations().get(IMPLIED_SPEC_ANNOTATION);
    // A user may have changed the namespace. The digest shows with which one the instance was generated, unless the request
    // has changed, too.
    let candidates = [current.clone(), request.release_namespace.clone(), None];
    let is_recorded = |release_namespace: Option<String>| {
        let request = ImplicitRequest { release_namespace, ..request.clone() };
        recorded == Some(&digest(&generated_spec(input.cluster, &request)))
    };
    candidates.into_iter().find(|namespace| is_recorded(namespace.clone())).unwrap_or(current)
}

/// Returns the instance to apply for a request, if any.
fn instance_to_apply(
    input: &ImplicitInput<'_>,
    key: &ExtensionKey,
    request: &ImplicitRequest,
    provisioned_before: bool,
) -> Option<ExtensionInstance> {
    let instance = generated(input.cluster, request);
    let enforced = request.origin == Origin::Enforced;
    match existing(input, &instance) {
        Some(existing) if existing.meta().deletion_timestamp.is_some() => None,
        Some(existing) if existing.spec == instance.spec && Origin::of(existing) == Some(request.origin) => {
            None
        }
        Some(existing) => (enforced || !is_modified(existing)).then_some(instance),
        None if enforced => Some(instance),
        None => (!provisioned_before && providers(input, key).next().is_none()).then_some(instance),
    }
}

/// Returns the existing instance with the name of a generated one.
fn existing<'a>(input: &ImplicitInput<'a>, generated: &ExtensionInstance) -> Option<&'a ExtensionInstance> {
    let name = generated.name_any();
    input.instances.iter().copied().find(|existing| existing.name_any() == name)
}

/// Returns whether an implicit instance is no longer requested. An instance that a user has changed is kept.
fn is_obsolete(
    input: &ImplicitInput<'_>,
    requested: &BTreeMap<ExtensionKey, ImplicitRequest>,
    instance: &ExtensionInstance,
) -> bool {
    let (Some(origin), Some(key)) = (Origin::of(instance), key_of(input, instance)) else { return false };
    if instance.meta().deletion_timestamp.is_some() || origin != Origin::Dependency && is_modified(instance) {
        return false;
    }
    // A release is handed over only to an object that exists. Until then it would be uninstalled and installed again.
    let not_yet_placed = |other: &ExtensionInstance| {
        other.name_any() != instance.name_any()
            && Origin::of(other) != Some(Origin::Dependency)
            && !(input.is_placed)(other)
    };
    if providers(input, &key).any(not_yet_placed) {
        return false;
    }
    let replaced = || providers(input, &key).any(|other| Origin::of(other) != Some(Origin::Dependency));
    match origin {
        Origin::Dependency => {
            let chosen = input.resolution.chosen.get(&key.to_string());
            let is_needed = || input.has_unread || (input.is_needed)(instance);
            replaced() || chosen.is_none_or(|chosen| chosen.requested) && !is_needed()
        }
        Origin::Default | Origin::Enforced | Origin::Listed => {
            let replaced_by_user = || providers(input, &key).any(|other| Origin::of(other).is_none());
            let not_requested = !requested.contains_key(&key) && (input.is_published)(&key);
            not_requested || origin != Origin::Enforced && replaced_by_user()
        }
    }
}

/// Returns the instances of an extension that are not being deleted.
fn providers<'a>(
    input: &'a ImplicitInput<'_>,
    key: &'a ExtensionKey,
) -> impl Iterator<Item = &'a ExtensionInstance> {
    input.instances.iter().copied().filter(move |instance| {
        instance.meta().deletion_timestamp.is_none() && key_of(input, instance).as_ref() == Some(key)
    })
}

fn key_of(input: &ImplicitInput<'_>, instance: &ExtensionInstance) -> Option<ExtensionKey> {
    let extension = instance.spec.extension.as_ref()?;
    // With an empty platform namespace, a reference to the platform always keeps that scope.
    Some(ExtensionKey::of(extension, &input.cluster.namespace, ""))
}

/// Returns whether a user has changed the spec of an implicit instance.
fn is_modified(instance: &ExtensionInstance) -> bool {
    instance.annotations().get(IMPLIED_SPEC_ANNOTATION) != Some(&digest(&instance.spec))
}

/// Returns the name of the implicit instance of an extension on a cluster.
pub fn implicit_instance_name(extension: &str, cluster: &str) -> String {
    naming::release_object(extension, cluster)
}

fn generated_spec(cluster: &ClusterKey, request: &ImplicitRequest) -> ExtensionInstanceSpec {
    ExtensionInstanceSpec {
        extension: Some(ExtensionReference {
            name: request.extension.name.clone(),
            catalog: request.extension.catalog.clone(),
            scope: request.extension.scope,
        }),
        version: request.range.clone(),
        clusters: Clusters { name: Some(cluster.name.clone()), selector: None },
        release: ReleaseTarget { name: None, namespace: request.release_namespace.clone() },
        parameters: request.parameters.clone(),
        parameters_template: request.parameters_template.clone(),
        ..ExtensionInstanceSpec::default()
    }
}

fn generated(cluster: &ClusterKey, request: &ImplicitRequest) -> ExtensionInstance {
    let spec = generated_spec(cluster, request);
    let digest = digest(&spec);
    let mut instance =
        ExtensionInstance::new(&implicit_instance_name(&request.extension.local_name(), &cluster.name), spec);
    instance.metadata.namespace = Some(cluster.namespace.clone());
    instance.labels_mut().insert(IMPLIED_BY_LABEL.to_owned(), request.origin.as_str().to_owned());
    instance.annotations_mut().insert(IMPLIED_SPEC_ANNOTATION.to_owned(), digest);
    instance
}

fn digest(spec: &ExtensionInstanceSpec) -> String {
    Digest::of(serde_json::to_string(spec).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests;
