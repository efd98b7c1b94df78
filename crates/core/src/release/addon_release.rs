//! [`ReleaseKind`] for AddonRelease.

use chandler_api::{
    extensions::{
        ADDON_RELEASE_FINALIZER, AddonRelease, AddonReleaseSpec, CrdsPolicy, FieldConflicts,
        INSTALLED_ANNOTATION, OnClusterDelete, PackageSource, ReleaseOptions, Scope, ValuesSecret,
    },
    reasons::ReleaseVocabulary,
    status::ReleaseStatus,
};
use kube_core::ResourceExt as _;

use super::{
    Desired, ExecutionOptions, PackageReference, ReleaseKind, RenderingOptions, SecretKey, SourceAccess,
    SourceFolder, Strategy, Values, ValuesReuse,
    desired::replaces_unsafe_crds,
    helm_release_proxy::{invalid, timeout},
};
use crate::{
    failure::Failure,
    identity::{ClusterKey, ReleaseId},
    tenancy::Recorded,
};

impl ReleaseKind for AddonRelease {
    const FINALIZER: &'static str = ADDON_RELEASE_FINALIZER;
    const INSTALLED_ANNOTATION: &'static str = INSTALLED_ANNOTATION;
    const REFERRER: (&'static str, &'static str) = ("chandler.dev", "ExtensionInstance");
    const VALUES_SUFFIX: &'static str = "-values";
    const ORDERED: bool = true;
    const VOCABULARY: ReleaseVocabulary = ReleaseVocabulary::AddonRelease;

    /// A package that is made of the values has the revision of the Source instead of its digest, so that other values are no
    /// other package.
    fn package_key(&self) -> String {
        let AddonReleaseSpec { extension, version, source, pinned, .. } = &self.spec;
        let pinned = pinned
            .as_ref()
            .map(|pinned| if pinned.includes_values { &pinned.revision } else { &pinned.digest });
        serde_json::json!([extension, version, source, pinned]).to_string()
    }

    fn follows_newest_version(&self) -> bool {
        self.spec.source.source_ref.is_none() && self.spec.source.version.is_none()
    }

    fn set_version(&mut self, version: &str) {
        self.spec.source.version = Some(version.to_owned());
    }

    fn has_other_folder_of_cluster(&self, existing: &Self) -> bool {
        let without_path = |release: &Self| {
            let source = PackageSource { path: None, ..release.spec.source.clone() };
            (release.spec.extension.clone(), release.spec.version.clone(), source)
        };
        self.spec.source.path != existing.spec.source.path && without_path(self) == without_path(existing)
    }

    fn values_secret(&self) -> Option<ValuesSecret> {
        self.spec.values_secret.clone()
    }

    fn desired(&self) -> Result<Desired, Failure> {
        let namespace = self.namespace().ok_or_else(|| invalid("the object has no namespace"))?;
        let spec = &self.spec;
        let folder = folder(spec)?;
        let values = match &spec.values_secret {
            Some(secret) => Values::Secret(
                SecretKey { namespace: namespace.clone(), name: secret.name.clone() },
                secret.digest.clone(),
            ),
            None if folder.as_ref().is_some_and(|folder| folder.pinned.includes_values) => {
                Values::Text(String::new())
            }
            None => Values::Text(spec.values.clone().unwrap_or_default()),
        };
        Ok(Desired {
            cluster: ClusterKey::new(namespace, spec.cluster.clone()),
            release: ReleaseId::new(spec.release.namespace.clone(), spec.release.name.clone()),
            package: package(spec, folder.as_ref()),
            access: SourceAccess { catalog: spec.source.catalog.clone(), folder, ..SourceAccess::default() },
            values,
            depends_on: spec.depends_on.clone(),
            remove_with_cluster: spec.on_cluster_delete == OnClusterDelete::Uninstall,
            strategy: Strategy::Continuous,
            rendering: rendering(&spec.options),
            execution: ExecutionOptions {
                replace_unsafe_crds: replaces_unsafe_crds(self),
                ..execution(&spec.options)?
            },
            recorded: Recorded::of(self),
        })
    }

    fn status(&self) -> Option<&ReleaseStatus> {
        self.status.as_ref()
    }
}

/// Returns the reference to the package. That of a folder contains the digest, so it changes with the content.
fn package(spec: &AddonReleaseSpec, folder: Option<&SourceFolder>) -> PackageReference {
    let Some(SourceFolder { source, path, pinned, .. }) = folder else {
        return PackageReference {
            repository: spec.source.repository.clone().unwrap_or_default(),
            name: spec.source.chart.clone(),
            version: spec.source.version.clone(),
        };
    };
    let scope = match source.scope {
        Scope::Namespace => "",
        Scope::Platform => "platform/",
    };
    PackageReference {
        repository: format!("source://{scope}{}", source.name),
        name: path.clone(),
        version: Some(pinned.digest.clone()),
    }
}

/// Returns the folder that the package is made of, if it is one of a Source.
fn folder(spec: &AddonReleaseSpec) -> Result<Option<SourceFolder>, Failure> {
    let Some(source) = spec.source.source_ref.clone() else { return Ok(None) };
    let pinned = spec.pinned.clone().ok_or_else(|| invalid("spec.pinned is not set"))?;
    let values = spec.values.clone().filter(|_| pinned.includes_values);
    let (tag, path) = (spec.source.version.clone(), spec.source.path.clone().unwrap_or_default());
    Ok(Some(SourceFolder { source, tag, path, pinned, values }))
}

fn rendering(options: &ReleaseOptions) -> RenderingOptions {
    RenderingOptions {
        disable_hooks: options.disable_hooks,
        skip_crds: options.skip_crds,
        sub_notes: false,
        values_reuse: ValuesReuse::Reset,
    }
}

fn execution(options: &ReleaseOptions) -> Result<ExecutionOptions, Failure> {
    Ok(ExecutionOptions {
        create_namespace: options.create_namespace,
        wait: options.wait || options.atomic,
        wait_for_jobs: options.wait_for_jobs,
        atomic: options.atomic,
        take_ownership: options.take_ownership,
        force: options.force,
        cleanup_on_fail: false,
        max_history: options.max_history,
        timeout: timeout(&options.timeout)?,
        keep_history: false,
        removal_description: String::new(),
        conflicts: FieldConflicts::default(),
        crds: CrdsPolicy::default(),
        replace_unsafe_crds: false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::Category;

    #[test]
    fn defaults_are_applied() {
        let object: AddonRelease = serde_json::from_value(json!({
            "metadata": {"name": "cni-blue", "namespace": "fleet"},
            "spec": {
                "cluster": "blue", "release": {"name": "cni", "namespace": "kube-system"},
                "source": {"repository": "https://charts.example", "chart": "cni", "version": "1.2.3"},
                "valuesSecret": {"name": "cni-blue-values", "digest": "sha256:00"}, "dependsOn": ["base-blue"],
                "onClusterDelete": "Uninstall",
            },
        }))
        .unwrap();
        let desired = object.desired().unwrap();
        assert_eq!(desired.cluster, ClusterKey::new("fleet", "blue"));
        let secret = SecretKey { namespace: "fleet".to_owned(), name: "cni-blue-values".to_owned() };
        assert_eq!(desired.values, Values::Secret(secret, "sha256:00".to_owned()));
        assert!(desired.execution.wait && desired.execution.create_namespace && desired.remove_with_cluster);
        assert_eq!(desired.depends_on, ["base-blue"]);
    }

    #[test]
    fn a_package_of_a_source_is_identified_by_its_digest() {
        let object = |scope: &str, includes_values: bool| -> AddonRelease {
            serde_json::from_value(json!({
                "metadata": {"name": "cni-blue", "namespace": "fleet"},
                "spec": {
                    "cluster": "blue", "release": {"name": "cni", "namespace": "kube-system"},
                    "source": {"sourceRef": {"name": "apps", "scope": scope}, "path": "cni"},
                    "pinned": {"revision": "c1", "digest": "sha256:00", "includesValues": includes_values},
                    "values": "a: 1\n",
                },
            }))
            .unwrap()
        };
        let desired = object("Namespace", false).desired().unwrap();
        assert_eq!(desired.package.to_string(), "source://apps/cni:sha256:00");
        assert_eq!(desired.values, Values::Text("a: 1\n".to_owned()));
        assert_eq!(desired.access.folder.unwrap().values, None);
        let desired = object("Platform", true).desired().unwrap();
        assert_eq!(desired.package.to_string(), "source://platform/apps/cni:sha256:00");
        assert_eq!(desired.values, Values::Text(String::new()), "they are in the package");
        assert_eq!(desired.access.folder.as_ref().unwrap().values.as_deref(), Some("a: 1\n"));
        let failure = Failure::new(Category::InvalidPackage, "a.yaml, line 3: the document is not YAML");
        assert_eq!(
            desired.failure_note(&failure),
            "cluster blue: Source apps, revision c1, folder \"cni\": a.yaml, line 3: the document is not YAML"
        );
        let mut unpinned = object("Namespace", false);
        unpinned.spec.pinned = None;
        assert!(unpinned.desired().unwrap_err().message.contains("spec.pinned is not set"));
    }
}
