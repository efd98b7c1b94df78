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
    CatalogFilter, CatalogStatus, ExtensionCatalog, ExtensionCatalogSpec, Verification, Verifier,
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
/// The channel of versions that nobody has to ask for by name.
pub const STABLE_CHANNEL: &str = "stable";
