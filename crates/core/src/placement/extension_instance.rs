//! [`PlacementKind`] for ExtensionInstance.

use chandler_api::{
    capi::{CLUSTER_NAME_LABEL, WATCH_FILTER_LABEL},
    extensions::{
        ADDON_RELEASE_FINALIZER, AddonRelease, AddonReleaseSpec, ExtensionInstance, INSTANCE_FINALIZER,
        INSTANCE_LABEL, InstanceStatus, OnClusterDelete, PackageSource, PinnedPackage, PlacementKindName,
        Reference, ReleaseIdentity, ValuesSecret,
    },
    reasons::PlacementVocabulary,
};
use kube_core::{Resource as _, ResourceExt};
use serde_json::Value;

use super::{PlacementKind, Selection, SelectionError, helm_chart_proxy::contains, kind::spec_without};
use crate::{
    identity::ClusterKey,
    naming,
    policy::{PolicyOverrides, ValuesOwner, policy_of},
    release::Strategy,
    tenancy::{Recorded, platform_extension},
};

impl PlacementKind for ExtensionInstance {
    type Release = AddonRelease;
    type Status = InstanceStatus;
    const KIND_NAME: PlacementKindName = PlacementKindName::ExtensionInstance;
    const FINALIZER: &'static str = INSTANCE_FINALIZER;
    const OWNER_LABEL: &'static str = INSTANCE_LABEL;
    const VOCABULARY: PlacementVocabulary = PlacementVocabulary::ExtensionInstance;

    fn selection(&self) -> Result<Selection, SelectionError> {
        let clusters = &self.spec.clusters;
        match (&clusters.name, &clusters.selector) {
            (Some(name), _) => Ok(Selection::Name(name.clone())),
            (None, Some(selector)) => Selection::labels(selector, "spec.clusters.selector"),
            (None, None) => Err(SelectionError::Empty),
        }
    }

    fn strategy(&self) -> Strategy {
        Strategy::Continuous
    }

    fn policy(&self) -> Option<Reference> {
        policy_of(Self::KIND_NAME, self.annotations(), self.spec.policy_ref.clone())
    }

    fn policy_overrides(&self) -> PolicyOverrides {
        let options = &self.spec.options;
        PolicyOverrides {
            atomic: options.atomic,
            skip_crds: options.skip_crds,
            force: options.force,
            values: ValuesOwner::Placement,
        }
    }

    fn shared_spec(&self) -> Value {
        let not_shared =
            ["clusters", "dependencies", "serviceAccountName", "policyRef", "workloadServiceAccountName"];
        spec_without(&self.spec, &not_shared)
    }

    fn follows_newest_version(&self) -> bool {
        self.spec
            .source
            .as_ref()
            .is_some_and(|source| source.source_ref.is_none() && source.version.is_none())
    }

    fn follows_extensions(&self) -> bool {
        self.spec.extension.is_some()
    }

    fn extension(&self) -> Option<Reference> {
        let extension = self.spec.extension.as_ref().filter(|extension| extension.catalog.is_none())?;
        Some(Reference { name: extension.name.clone(), scope: extension.scope })
    }

    fn catalogs(&self) -> Vec<Reference> {
        let extension = self.spec.extension.as_ref();
        let of_extension = extension.and_then(|extension| {
            Some(Reference { name: extension.catalog.clone()?, scope: extension.scope })
        });
        let of_source = self.spec.source.as_ref().and_then(|source| source.catalog.clone());
        of_extension.into_iter().chain(of_source).collect()
    }

    fn follows_sources(&self) -> bool {
        self.spec.source.as_ref().is_some_and(|source| source.source_ref.is_some())
    }

    fn same_request(existing: &AddonRelease, desired: &AddonRelease) -> bool {
        existing.spec == desired.spec
            && contains(existing.labels(), desired.labels())
            && contains(existing.annotations(), desired.annotations())
    }

    /// Another package of the same release is an upgrade, because each version of an extension may have its own.
    fn same_identity(existing: &AddonRelease, desired: &AddonRelease) -> bool {
        existing.spec.cluster == desired.spec.cluster && existing.spec.release == desired.spec.release
    }

    fn cluster_of(release: &AddonRelease) -> Option<ClusterKey> {
        Some(ClusterKey::new(release.namespace()?, release.spec.cluster.clone()))
    }

    fn status(&self) -> Option<&InstanceStatus> {
        self.status.as_ref()
    }
}

/// The content of the release object of an instance on one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReleaseContent {
    /// The extension and its version. `None` if the instance names a source instead of an extension.
    pub extension: Option<(String, String)>,
    pub source: PackageSource,
    /// Set if the package is made of a folder of a Source.
    pub pinned: Option<PinnedPackage>,
    pub values: Option<String>,
    pub values_secret: Option<ValuesSecret>,
    pub depends_on: Vec<String>,
    pub on_cluster_delete: OnClusterDelete,
    /// The catalog of the platform that offers the folder in `source`.
    pub platform_catalog: Option<String>,
}

/// Returns the name of the release object of an instance for a cluster. If the instance names a single cluster, it is
/// the name of the instance.
pub fn addon_release_name(instance: &ExtensionInstance, cluster: &str) -> String {
    match &instance.spec.clusters.name {
        Some(_) => instance.name_any(),
        None => naming::release_object(&instance.name_any(), cluster),
    }
}

/// Returns the package to pin. If the release object has the same content already, its revision is kept, so that a commit
/// that changes nothing in the folder changes no release object.
pub fn pin(existing: Option<&AddonRelease>, source: &PackageSource, made: PinnedPackage) -> PinnedPackage {
    let existing = existing.filter(|existing| existing.spec.source == *source);
    let pinned = existing.and_then(|existing| existing.spec.pinned.clone());
    let same_content =
        |pinned: &PinnedPackage| PinnedPackage { revision: made.revision.clone(), ..pinned.clone() } == made;
    pinned.filter(same_content).unwrap_or(made)
}

/// Returns the name and namespace of the release on the workload cluster.
pub fn release_identity(instance: &ExtensionInstance) -> ReleaseIdentity {
    let (spec, release) = (&instance.spec, &instance.spec.release);
    let default = spec.extension.as_ref().map(|extension| &extension.name);
    let chart = spec.source.as_ref().map(|source| &source.chart).filter(|chart| !chart.is_empty());
    // A package of a Source has no name of its own.
    let default = default.or(chart).cloned().unwrap_or_else(|| instance.name_any());
    // The name of a package in an OCI registry may contain a path.
    let default = default.rsplit('/').next().unwrap_or_default().to_owned();
    let name = release.name.clone().unwrap_or(default);
    ReleaseIdentity { namespace: release.namespace.clone().unwrap_or_else(|| name.clone()), name }
}

/// Returns the release object of an instance for a cluster. The name of the `existing` object is kept.
pub fn addon_release(
    instance: &ExtensionInstance,
    cluster: &ClusterKey,
    content: ReleaseContent,
    existing: Option<&AddonRelease>,
) -> AddonRelease {
    let name = existing.map_or_else(|| addon_release_name(instance, &cluster.name), ResourceExt::name_any);
    let (extension, version) = content.extension.unzip();
    let spec = AddonReleaseSpec {
        cluster: cluster.name.clone(),
        release: release_identity(instance),
        extension,
        version,
        source: content.source,
        pinned: content.pinned,
        values: content.values,
        values_secret: content.values_secret,
        depends_on: content.depends_on,
        on_cluster_delete: content.on_cluster_delete,
        options: instance.spec.options.clone(),
    };
    let mut object = AddonRelease::new(&name, spec);
    object.metadata.namespace = instance.namespace();
    object.metadata.finalizers = Some(vec![ADDON_RELEASE_FINALIZER.to_owned()]);
    object.metadata.owner_references = instance.controller_owner_ref(&()).map(|owner| vec![owner]);
    object.labels_mut().extend([
        (CLUSTER_NAME_LABEL.to_owned(), naming::label_value(&cluster.name)),
        (INSTANCE_LABEL.to_owned(), naming::label_value(&instance.name_any())),
    ]);
    if let Some(filter) = instance.labels().get(WATCH_FILTER_LABEL) {
        object.labels_mut().insert(WATCH_FILTER_LABEL.to_owned(), filter.clone());
    }
    let recorded = Recorded {
        account: instance.spec.workload_service_account_name.clone(),
        platform_extension: platform_extension(instance).map(str::to_owned),
        platform_catalog: content.platform_catalog,
        ..Recorded::default()
    };
    recorded.write(&mut object, existing);
    object
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::PLATFORM_EXTENSION_ANNOTATION;
    use serde_json::json;

    use super::*;

    fn instance(spec: &Value) -> ExtensionInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "net", "namespace": "fleet", "uid": "u"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn releases_are_named_after_their_extension_or_chart() {
        let identity = |spec: Value| release_identity(&instance(&spec));
        let named = |name: &str, namespace: &str| ReleaseIdentity {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        };
        let all = json!({"selector": {}});
        let of_extension = identity(json!({"extension": {"name": "cni"}, "clusters": all}));
        assert_eq!(of_extension, named("cni", "cni"));
        let chosen =
            json!({"extension": {"name": "cni"}, "clusters": all, "release": {"namespace": "kube-system"}});
        assert_eq!(identity(chosen), named("cni", "kube-system"));
        let source =
            json!({"source": {"repository": "https://c.example", "chart": "tools"}, "clusters": all});
        assert_eq!(identity(source), named("tools", "tools"));
        let of_source = json!({"source": {"sourceRef": {"name": "apps"}, "path": "cni"}, "clusters": all});
        assert_eq!(identity(of_source), named("net", "net"), "the name of the instance");
    }

    #[test]
    fn an_object_belongs_to_its_instance_and_cluster() {
        let cluster = ClusterKey::new("fleet", "blue");
        let one = instance(&json!({"extension": {"name": "cni"}, "clusters": {"name": "blue"}}));
        let object = addon_release(&one, &cluster, ReleaseContent::default(), None);
        assert_eq!(object.name_any(), "net");
        assert_eq!(ExtensionInstance::cluster_of(&object), Some(cluster.clone()));
        let many = instance(&json!({"extension": {"name": "cni"}, "clusters": {"selector": {}}}));
        let object = addon_release(&many, &cluster, ReleaseContent::default(), None);
        assert!(object.name_any().starts_with("net-blue-"));
        assert!(ExtensionInstance::same_request(&object, &object));
    }

    /// The account and the exemption from AddonTenancies are those of the spec that is written with them.
    #[test]
    fn the_origin_of_the_spec_is_recorded_with_it_and_removed_explicitly() {
        let cluster = ClusterKey::new("fleet", "blue");
        let clusters = json!({"name": "blue"});
        let platform = json!({"extension": {"name": "cni", "scope": "Platform"}, "clusters": clusters});
        let own = json!({
            "source": {"repository": "https://c.example", "chart": "cni"}, "clusters": clusters,
            "workloadServiceAccountName": "deployer",
        });
        let compose = |spec: &Value, existing: Option<&AddonRelease>| {
            addon_release(&instance(spec), &cluster, ReleaseContent::default(), existing)
        };
        let first = compose(&platform, None);
        assert_eq!(Recorded::of(&first).platform_extension.as_deref(), Some("cni"));
        let second = compose(&own, Some(&first));
        let recorded = Recorded::of(&second);
        assert_eq!((recorded.account.as_deref(), recorded.platform_extension), (Some("deployer"), None));
        assert_eq!(second.annotations()[PLATFORM_EXTENSION_ANNOTATION], "", "it is overwritten");
        assert!(!ExtensionInstance::same_request(&first, &second));
        let third = compose(&platform, Some(&second));
        assert_eq!(Recorded::of(&third), Recorded::of(&first));
        let plain = compose(&json!({"extension": {"name": "cni"}, "clusters": clusters}), None);
        assert!(plain.annotations().is_empty(), "nothing to record");
    }

    #[test]
    fn a_commit_that_changes_nothing_keeps_the_pinned_revision() {
        let source = |path: &str| PackageSource { path: Some(path.to_owned()), ..PackageSource::default() };
        let made = |revision: &str, digest: &str| PinnedPackage {
            revision: revision.to_owned(),
            digest: digest.to_owned(),
            ..PinnedPackage::default()
        };
        let spec =
            AddonReleaseSpec { source: source("cni"), pinned: Some(made("c1", "one")), ..Default::default() };
        let existing = AddonRelease::new("net-blue", spec);
        let rows = [
            (Some(&existing), "cni", made("c2", "one"), made("c1", "one")),
            (Some(&existing), "cni", made("c2", "two"), made("c2", "two")),
            (Some(&existing), "other", made("c2", "one"), made("c2", "one")),
            (None, "cni", made("c2", "one"), made("c2", "one")),
        ];
        for (existing, path, made, expected) in rows {
            assert_eq!(pin(existing, &source(path), made), expected);
        }
    }
}
