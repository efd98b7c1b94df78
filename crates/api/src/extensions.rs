//! `chandler.dev/v1alpha1`: where extensions come from, what they are, who wants them where, and what runs.

mod addon_release;
mod catalog;
mod extension;
mod instance;
mod parameters;
mod reference;
mod rules;
mod source;
mod version;

pub use addon_release::{AddonRelease, AddonReleaseSpec, ReleaseIdentity, ReleaseOptions, ValuesSecret};
pub use catalog::{
    CatalogFilter, CatalogStatus, ExtensionCatalog, ExtensionCatalogSpec, SignerIdentity, Verification,
    Verifier,
};
pub use extension::{
    DefaultInstall, Extension, ExtensionSpec, ExtensionStatus, FollowKubernetes, KubernetesUpgrade,
    Lifecycle, Maintainer, OnClusterDelete, UpgradeMoment,
};
pub use instance::{
    ClusterResolution, Clusters, DependencyPolicy, ExtensionInstance, ExtensionInstanceSpec, InstanceStatus,
    ReleasePlace,
};
pub use parameters::{ObjectField, ParametersFrom};
pub use reference::{ExtensionReference, KeyReference, Reference, Scope, SecretName};
pub use source::PackageSource;
pub use version::{Dependency, ExtensionVersion, VersionParameters};

/// Group of the kinds.
pub const GROUP: &str = "chandler.dev";
/// Keeps an ExtensionInstance until its releases are gone.
pub const INSTANCE_FINALIZER: &str = "extensioninstance.chandler.dev";
/// Keeps an AddonRelease until its release has been removed.
pub const ADDON_RELEASE_FINALIZER: &str = "addonrelease.chandler.dev";
/// Label of an AddonRelease: the ExtensionInstance that made it.
pub const INSTANCE_LABEL: &str = "chandler.dev/instance";
/// Annotation of an AddonRelease: it has been installed at least once.
pub const INSTALLED_ANNOTATION: &str = "chandler.dev/installed";
/// Label of an ExtensionInstance that nobody wrote: why it is there.
pub const IMPLIED_BY_LABEL: &str = "chandler.dev/implied-by";
/// Annotation of an ExtensionInstance that nobody wrote: digest of its spec as it was made.
pub const IMPLIED_SPEC_ANNOTATION: &str = "chandler.dev/implied-spec";
/// Annotation of a Cluster: the extensions that were given to it without anybody asking.
pub const GIVEN_ANNOTATION: &str = "chandler.dev/given-extensions";
/// The channel of versions that nobody has to ask for by name.
pub const STABLE_CHANNEL: &str = "stable";
