//! `chandler.dev/v1alpha1`: catalogs, extensions, their instances on clusters, the resulting releases, policies, sources of
//! files, and Syncs.

mod addon_release;
mod catalog;
mod extension;
mod instance;
mod package_source;
mod parameters;
mod policy;
mod reference;
mod rollout;
pub(crate) mod rules;
mod source;
mod sync;
mod tenancy;
mod version;

pub use addon_release::{
    AddonRelease, AddonReleaseSpec, PinnedPackage, ReleaseIdentity, ReleaseOptions, ValuesSecret,
};
pub use catalog::{
    CatalogFilter, CatalogSource, CatalogStatus, ExtensionCatalog, ExtensionCatalogSpec, SignerIdentity,
    Verification, Verifier,
};
pub use extension::{
    DefaultInstall, Extension, ExtensionSpec, ExtensionStatus, FollowKubernetes, KubernetesUpgrade,
    Lifecycle, Maintainer, OnClusterDelete, UpgradeMoment,
};
pub use instance::{
    ClusterResolution, Clusters, DependencyPolicy, ExtensionInstance, ExtensionInstanceSpec, InstanceStatus,
    ReleaseTarget, RevisionCount, SourceProgress,
};
pub use package_source::PackageSource;
pub use parameters::{ObjectField, ObjectList, ParametersFrom};
pub use policy::{
    AddonPolicy, AddonPolicySpec, CrdsPolicy, DriftIgnore, DriftMode, DriftPolicy, DriftTarget,
    FieldConflicts, HealthCheck, HealthPolicy, OnFailure, OnUnselect, PlacementKindName, PlacementReference,
    Remediation, TestFailure, TestPolicy, ValuesFrom,
};
pub use reference::{ExtensionReference, KeyReference, Reference, Scope, SecretName};
pub use rollout::{RolloutPolicy, Wave};
pub use source::{
    Bucket, BucketProvider, GitReference, GitRepository, GitVerification, OciArtifact, OciReference, Source,
    SourceCredentials, SourceReceiver, SourceRef, SourceRevision, SourceRevisionRecord, SourceSpec,
    SourceStatus, VerificationMode,
};
pub use sync::{
    AppliedRevision, ConfirmedObject, DeletionPolicy, HeldObject, Prune, PruneConfirmation, SyncObject,
    SyncSource, SyncSpec, SyncStatus, SyncedObject,
};
pub use tenancy::{
    AddonTenancy, AddonTenancySpec, AllowedKinds, AllowedSources, KindPattern, TenantNamespaces,
    WorkloadServiceAccount,
};
pub use version::{Dependency, ExtensionVersion, VersionParameters};

/// API group of the kinds.
pub const GROUP: &str = "chandler.dev";
/// Finalizer of an ExtensionInstance. It is removed after its releases are deleted.
pub const INSTANCE_FINALIZER: &str = "extensioninstance.chandler.dev";
/// Finalizer of an AddonRelease. It is removed after its release is uninstalled.
pub const ADDON_RELEASE_FINALIZER: &str = "addonrelease.chandler.dev";
/// Label of an AddonRelease with the name of its ExtensionInstance.
pub const INSTANCE_LABEL: &str = "chandler.dev/instance";
/// Annotation of an AddonRelease that was installed at least once.
pub const INSTALLED_ANNOTATION: &str = "chandler.dev/installed";
/// Annotation of a release object, of either kind, with the uid of the Cluster on which its release was installed once.
pub const INSTALLED_ON_ANNOTATION: &str = "chandler.dev/installed-on";
/// Label of an ExtensionInstance that Chandler created, with the reason.
pub const IMPLIED_BY_LABEL: &str = "chandler.dev/implied-by";
/// Annotation of an ExtensionInstance that Chandler created, with the digest of its spec at creation.
pub const IMPLIED_SPEC_ANNOTATION: &str = "chandler.dev/implied-spec";
/// Annotation of a Cluster with the extensions that Chandler installed on it without an ExtensionInstance of a user.
pub const GIVEN_ANNOTATION: &str = "chandler.dev/given-extensions";
/// Annotation of a HelmChartProxy with its AddonPolicy: `NAME`, or `platform/NAME` for one in the platform namespace.
pub const POLICY_ANNOTATION: &str = "chandler.dev/policy";
/// Annotation of a HelmChartProxy with the name of the ServiceAccount, in the namespace of the release on the workload cluster, as
/// which objects of its releases are read, written and deleted. Chandler copies it, or the name in an ExtensionInstance, to the
/// release objects together with their spec. An empty value means none.
pub const WORKLOAD_ACCOUNT_ANNOTATION: &str = "chandler.dev/workload-service-account";
/// Annotation of an AddonRelease with the name of the Extension of the platform that its spec installs as it is published.
/// Chandler writes it together with the spec. An empty value means none.
pub const PLATFORM_EXTENSION_ANNOTATION: &str = "chandler.dev/platform-extension";
/// Annotation of an AddonRelease with the name of the ExtensionCatalog of the platform that offers the folder of a Source in its
/// spec. Chandler writes it together with the spec. An empty value means none.
pub const PLATFORM_CATALOG_ANNOTATION: &str = "chandler.dev/platform-catalog";
/// Annotation of an AddonRelease with the digest of inputs that were those of an Extension of the platform, as it is published,
/// when they were installed. Chandler writes it if there are AddonTenancies or a default account.
pub const PLATFORM_INPUTS_ANNOTATION: &str = "chandler.dev/platform-inputs";
/// Annotation of a HelmChartProxy with versions of its chart by Kubernetes minor version, as a JSON object such as
/// `{"1.34": "1.2.x", "1.35": "1.3.x"}`.
pub const KUBERNETES_VERSIONS_ANNOTATION: &str = "chandler.dev/kubernetes-versions";
/// Annotation of a HelmChartProxy with the moment of a Kubernetes upgrade at which its version changes: `BeforeControlPlane`,
/// `AfterControlPlane` (the default) or `AfterCluster`.
pub const KUBERNETES_UPGRADE_ANNOTATION: &str = "chandler.dev/kubernetes-upgrade";
/// Annotation of a placement or of a release object with the value `true`: no operation is started. `chandler suspend`
/// writes it.
pub const SUSPEND_ANNOTATION: &str = "chandler.dev/suspend";
/// Annotation of a release object with the time (RFC 3339) at which a user has asked to try it again. Earlier failures do not
/// count any more. `chandler retry` writes it.
pub const RETRY_ANNOTATION: &str = "chandler.dev/retry-at";
/// Annotation of a release object with `onClusterDelete` of its AddonPolicy, as long as that says something. It counts while the
/// policy does not exist.
pub const ON_CLUSTER_DELETE_ANNOTATION: &str = "chandler.dev/on-cluster-delete";
/// Annotation of a release object that its placement deletes because it no longer selects the Cluster.
pub const UNSELECTED_ANNOTATION: &str = "chandler.dev/unselected";
/// Label of the record of a revision that a rollback has created: the digest of the inputs that had failed, and the number of
/// the revision, as in the label of the revision's own inputs.
pub const ROLLED_BACK_LABEL: &str = "chandler.dev/rolled-back";
/// Annotation of a placement or of a release object with the value `true`: CRDs are replaced or deleted even if that could lose
/// data. On a CRD in a package, it allows replacing this one.
pub const REPLACE_CRDS_ANNOTATION: &str = "chandler.dev/replace-unsafe-crds";
/// Annotation of an object on a workload cluster, or in a package, with the value `ignore`: it is neither compared with its
/// package nor corrected.
pub const DRIFT_ANNOTATION: &str = "chandler.dev/drift";
/// Annotation of a release object whose placement rolls changes out: what the placement shared between its clusters when the
/// object got its spec, how the object got there, and what a rollout has to
/// remember of its release, as JSON.
pub const ROLLOUT_ANNOTATION: &str = "chandler.dev/rollout";
/// Annotation of a placement with the value `true`: its rollout does not go on. `chandler rollout pause` writes it.
pub const ROLLOUT_PAUSED_ANNOTATION: &str = "chandler.dev/rollout-paused";
/// Annotation of a placement with the time (RFC 3339) at which a user has resumed its rollout. Earlier failures do not stop it
/// any more. `chandler rollout resume` writes it.
pub const ROLLOUT_RESUME_AT_ANNOTATION: &str = "chandler.dev/rollout-resume-at";
/// Annotation of a placement with the names of the Clusters, separated by commas, that its rollouts leave out.
/// `chandler rollout skip` writes it.
pub const ROLLOUT_SKIP_ANNOTATION: &str = "chandler.dev/rollout-skip";
/// Annotation of a placement with the targets, separated by commas, that no release is updated to any more, and from which those
/// that were updated are rolled back. `chandler rollout abort` writes it.
pub const ROLLOUT_ABORT_ANNOTATION: &str = "chandler.dev/rollout-abort";
/// Annotation of a placement with the release objects that its rollout has deleted because their releases get another name or
/// namespace, as JSON. A rollout writes it before, and removes it once their successors are there.
pub const ROLLOUT_REPLACED_ANNOTATION: &str = "chandler.dev/rollout-replaced";
/// Annotation of a release object with the revision that a user wants to restore, `inputDigest` of its status, and its generation,
/// separated by dots. `chandler rollback` writes it. It has no effect once both have changed.
pub const ROLLBACK_ANNOTATION: &str = "chandler.dev/rollback-to";
/// Annotation of a HelmReleaseProxy whose values contain data of Secrets: the name of the Secret with the values, `@`, and their
/// digest.
pub const VALUES_SECRET_ANNOTATION: &str = "chandler.dev/values-secret";
/// The channel of an instance that does not set one.
pub const STABLE_CHANNEL: &str = "stable";
/// Finalizer of a Sync with `deletionPolicy: Prune`. It is removed after its objects are deleted.
pub const SYNC_FINALIZER: &str = "sync.chandler.dev";
/// Label of an object that a Sync has written, with the namespace and name of the Sync.
pub const SYNC_LABEL: &str = "chandler.dev/sync";
/// Annotation of a Sync with the time at which a user has resumed it.
pub const RESUMED_ANNOTATION: &str = "chandler.dev/resumed-at";
/// Annotation of a Source with the time at which a user has asked to poll its repository.
pub const RECONCILE_ANNOTATION: &str = "chandler.dev/reconcile-at";
/// Annotation of a Source that `chandler source pin` has pinned, with its earlier `ref` as JSON.
pub const UNPINNED_REF_ANNOTATION: &str = "chandler.dev/unpinned-ref";
/// The field manager of the objects that Syncs write.
pub const SYNC_FIELD_MANAGER: &str = "chandler-sync";
