//! The desired state of a release, independent of the kind of its object and of the package tool.

use std::{fmt, time::Duration};

use chandler_api::extensions::{
    CrdsPolicy, FieldConflicts, OnClusterDelete, PinnedPackage, REPLACE_CRDS_ANNOTATION, Reference,
};
use kube_core::{Resource, ResourceExt as _};

use crate::{
    failure::Failure,
    identity::{ClusterKey, ReleaseId},
    policy::ReleasePolicy,
    tenancy::Recorded,
    url_login::WithoutLogin,
};

/// The desired state of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub cluster: ClusterKey,
    pub release: ReleaseId,
    pub package: PackageReference,
    pub access: SourceAccess,
    pub values: Values,
    /// Names of objects of the same kind whose releases have to be ready first.
    pub depends_on: Vec<String>,
    /// Whether the release is uninstalled before its Cluster is deleted, because it owns resources outside of the
    /// cluster.
    pub remove_with_cluster: bool,
    pub strategy: Strategy,
    pub rendering: RenderingOptions,
    pub execution: ExecutionOptions,
    /// Where it comes from, for AddonTenancies.
    pub recorded: Recorded,
}

impl Desired {
    /// Returns the desired state under a policy, which is the default one if there is none. It has the same inputs: a change of
    /// a policy creates no revision.
    #[must_use]
    pub fn with_policy(mut self, policy: &ReleasePolicy) -> Self {
        self.execution.conflicts = policy.conflicts;
        self.execution.crds = if self.rendering.skip_crds { CrdsPolicy::Skip } else { policy.crds };
        if let Some(on_cluster_delete) = policy.on_cluster_delete {
            self.remove_with_cluster = on_cluster_delete == OnClusterDelete::Uninstall;
        }
        self
    }

    /// Returns the note of an Event about a failure. If the package is made of a folder of a Source, it names the cluster and
    /// the revision, so that users find the bad commit.
    pub fn failure_note(&self, failure: &Failure) -> String {
        let (cluster, message) = (&self.cluster.name, &failure.message);
        match &self.access.folder {
            Some(folder) if message.contains(&folder.pinned.revision) => {
                format!("cluster {cluster}: {message}")
            }
            Some(folder) => format!("cluster {cluster}: {folder}: {message}"),
            None => message.clone(),
        }
    }
}

/// Returns whether a release object, or a placement, has the annotation that lets CRDs be replaced or deleted even if that
/// could lose data.
pub fn replaces_unsafe_crds(object: &impl Resource) -> bool {
    object.annotations().get(REPLACE_CRDS_ANNOTATION).is_some_and(|value| value == "true")
}

/// The values of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// In the release object.
    Text(String),
    /// In a Secret at [`VALUES_KEY`], with the digest of the text.
    Secret(SecretKey, String),
    /// In a Secret that must not be read, because the release object does not confirm which one, with the digest of the text.
    Unconfirmed(String),
}

/// The key of a values Secret.
pub const VALUES_KEY: &str = "values.yaml";

/// A reference to a package by name and version. It is shown without the login of its repository.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PackageReference {
    /// `https://…` or `oci://…`. Old objects may have a login in it.
    pub repository: String,
    pub name: String,
    /// A version or a range. `None` means the newest version.
    pub version: Option<String>,
}

impl fmt::Display for PackageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("latest");
        let repository = WithoutLogin(self.repository.trim_end_matches('/'));
        write!(f, "{repository}/{}:{version}", self.name)
    }
}

impl fmt::Debug for PackageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackageReference({self})")
    }
}

/// How to access the source of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceAccess {
    /// Secret with the certificate authority at `ca.crt`.
    pub ca: Option<SecretKey>,
    /// Secret with the credentials, and the key of an optional Docker configuration in it.
    pub credentials: Option<(SecretKey, String)>,
    pub insecure_skip_tls_verify: bool,
    /// The catalog that configures the repository and the access to it. The other fields are empty then.
    pub catalog: Option<Reference>,
    /// The folder that the package is made of. The other fields are empty then.
    pub folder: Option<SourceFolder>,
}

/// A folder of a Source, and the package that was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceFolder {
    pub source: Reference,
    /// The tag that is used instead of the revision of the Source.
    pub tag: Option<String>,
    pub path: String,
    pub pinned: PinnedPackage,
    /// The values that are part of the package.
    pub values: Option<String>,
}

impl fmt::Display for SourceFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, path, pinned, .. } = self;
        write!(f, "Source {}, revision {}, folder {path:?}", source.name, pinned.revision)
    }
}

/// The key of a Secret on the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SecretKey {
    pub namespace: String,
    pub name: String,
}

/// What happens after the first successful installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    Continuous,
    InstallOnce,
}

/// Options that affect the content of a release. A change requires an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderingOptions {
    pub disable_hooks: bool,
    pub skip_crds: bool,
    pub sub_notes: bool,
    pub values_reuse: ValuesReuse,
}

/// How an upgrade treats the values of the previous revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValuesReuse {
    #[default]
    Reset,
    Reuse,
    ResetThenReuse,
}

/// Options of operations. A change does not create a new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionOptions {
    pub create_namespace: bool,
    pub wait: bool,
    pub wait_for_jobs: bool,
    pub atomic: bool,
    pub take_ownership: bool,
    pub force: bool,
    pub cleanup_on_fail: bool,
    /// Number of revisions to keep. 0 means all.
    pub max_history: u32,
    pub timeout: Duration,
    pub keep_history: bool,
    pub removal_description: String,
    /// What happens to fields that another field manager has set.
    pub conflicts: FieldConflicts,
    /// What happens to the CRDs of the package. [`Desired::with_policy`] sets it, where [`RenderingOptions::skip_crds`] wins.
    pub crds: CrdsPolicy,
    /// Whether CRDs are replaced or deleted even if that could lose data.
    pub replace_unsafe_crds: bool,
}

impl ExecutionOptions {
    /// Reduces the timeout to `max`. Returns the timeout that was requested if it is longer.
    pub fn reduce_timeout(&mut self, max: Duration) -> Option<Duration> {
        let requested = self.timeout;
        self.timeout = requested.min(max);
        (requested > max).then_some(requested)
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::AddonRelease;
    use serde_json::json;

    use super::*;
    use crate::release::ReleaseKind as _;

    fn release(options: &serde_json::Value, on_cluster_delete: &str) -> AddonRelease {
        serde_json::from_value(json!({
            "metadata": {"name": "cni-blue", "namespace": "fleet"},
            "spec": {
                "cluster": "blue", "release": {"name": "cni", "namespace": "kube-system"},
                "source": {"repository": "https://charts.example", "chart": "cni"},
                "options": options, "onClusterDelete": on_cluster_delete,
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_timeout_is_reduced_to_the_maximum() {
        let hour = Duration::from_hours(1);
        for (text, expected, requested) in [
            ("10m", Duration::from_mins(10), None),
            ("1h", hour, None),
            ("3h", hour, Some(Duration::from_hours(3))),
        ] {
            let mut desired = release(&json!({"timeout": text}), "Skip").desired().unwrap();
            assert_eq!(desired.execution.reduce_timeout(hour), requested, "{text}");
            assert_eq!(desired.execution.timeout, expected, "{text}");
        }
    }

    #[test]
    fn a_policy_changes_how_a_release_is_operated_and_none_of_its_inputs() {
        let desired = release(&json!({}), "Skip").desired().unwrap();
        let policy = ReleasePolicy {
            conflicts: FieldConflicts::IgnoreFields,
            crds: CrdsPolicy::CreateReplace,
            ..ReleasePolicy::default()
        };
        let changed = desired.clone().with_policy(&policy);
        assert_eq!(changed.execution.conflicts, FieldConflicts::IgnoreFields);
        assert_eq!(changed.execution.crds, CrdsPolicy::CreateReplace);
        assert_eq!(changed.rendering, desired.rendering, "no new revision");
        assert_eq!(desired.clone().with_policy(&ReleasePolicy::default()), desired);
        for policy in [policy, ReleasePolicy::default()] {
            let skipping =
                release(&json!({"skipCRDs": true}), "Skip").desired().unwrap().with_policy(&policy);
            assert_eq!(skipping.execution.crds, CrdsPolicy::Skip, "the option wins");
        }
    }

    #[test]
    fn a_policy_decides_what_happens_with_the_cluster_if_it_says_so() {
        use OnClusterDelete::{Skip, Uninstall};
        let rows = [
            ("Skip", None, false),
            ("Uninstall", None, true),
            ("Skip", Some(Uninstall), true),
            ("Uninstall", Some(Skip), false),
        ];
        for (own, on_cluster_delete, expected) in rows {
            let policy = ReleasePolicy { on_cluster_delete, ..ReleasePolicy::default() };
            let desired = release(&json!({}), own).desired().unwrap().with_policy(&policy);
            assert_eq!(desired.remove_with_cluster, expected, "{own} {on_cluster_delete:?}");
        }
    }

    #[test]
    fn an_annotation_allows_to_replace_any_crd() {
        for (value, expected) in
            [(None, false), (Some("true"), true), (Some("false"), false), (Some(""), false)]
        {
            let mut release = release(&json!({}), "Skip");
            release
                .annotations_mut()
                .extend(value.map(|value| (REPLACE_CRDS_ANNOTATION.to_owned(), value.to_owned())));
            assert_eq!(release.desired().unwrap().execution.replace_unsafe_crds, expected, "{value:?}");
        }
    }
}
