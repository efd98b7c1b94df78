//! `addons.cluster.x-k8s.io/v1alpha1`: the kinds shared with the Cluster API add-on provider for Helm, field for field.

mod helm_chart_proxy;
mod helm_release_proxy;
mod options;
pub(crate) mod rules;
mod source_access;

pub use helm_chart_proxy::{HelmChartProxy, HelmChartProxySpec};
pub use helm_release_proxy::{HelmReleaseProxy, HelmReleaseProxySpec};
pub use options::{HelmInstallOptions, HelmOptions, HelmUninstallOptions, HelmUpgradeOptions, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use source_access::{Credentials, SecretReference, TlsConfig};

/// Keeps a HelmChartProxy until its releases are gone.
pub const CHART_PROXY_FINALIZER: &str = "helmchartproxy.addons.cluster.x-k8s.io";
/// Keeps a HelmReleaseProxy until its release has been removed from the workload cluster.
pub const RELEASE_PROXY_FINALIZER: &str = "helmreleaseproxy.addons.cluster.x-k8s.io";
/// Label of a HelmReleaseProxy: the HelmChartProxy it belongs to.
pub const CHART_PROXY_NAME_LABEL: &str = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name";
/// Annotation of a HelmReleaseProxy: its release name was generated.
pub const RELEASE_NAME_GENERATED_ANNOTATION: &str =
    "helmreleaseproxy.addons.cluster.x-k8s.io/is-release-name-generated";
/// Annotation of a HelmReleaseProxy: the release has been installed at least once.
pub const SUCCESSFULLY_INSTALLED_ANNOTATION: &str =
    "helmreleaseproxy.addons.cluster.x-k8s.io/release-successfully-installed";

/// What happens to a release after its first successful installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReconcileStrategy {
    /// The same as `Continuous`.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Install once; never upgrade, never uninstall.
    InstallOnce,
    /// Keep the release as the spec says.
    Continuous,
}

/// Leaves `false` out of written objects, as the field's other writers do.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// Where a release goes if its spec does not say.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The key of a credentials Secret if its reference does not say.
pub const DEFAULT_CREDENTIALS_KEY: &str = "config.json";

/// An empty field means the same as one that is not set.
pub fn or_default(text: &str, default: &str) -> String {
    if text.is_empty() { default } else { text }.to_owned()
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
