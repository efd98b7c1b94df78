//! `addons.cluster.x-k8s.io/v1alpha1`: the kinds of the Cluster API add-on providers for Helm and for Fleet, with the same
//! fields.

mod fleet_addon_config;
mod helm_chart_proxy;
mod helm_release_proxy;
mod options;
pub(crate) mod rules;
mod source_access;

pub use fleet_addon_config::{
    DEFAULT_AGENT_NAMESPACE, FLEET_ADDON_CONFIG_NAME, FleetAddonConfig, FleetAddonConfigSpec,
    FleetAddonConfigStatus, FleetClassConfig, FleetClusterConfig, FleetFeatureGates, FleetFeaturesConfigMap,
    FleetInstall, FleetNaming, FleetServer, FleetServerAddress, FleetServerConfig,
};
pub use helm_chart_proxy::{HelmChartProxy, HelmChartProxySpec};
pub use helm_release_proxy::{HelmReleaseProxy, HelmReleaseProxySpec};
pub use options::{HelmInstallOptions, HelmOptions, HelmUninstallOptions, HelmUpgradeOptions, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use source_access::{Credentials, SecretReference, TlsConfig};

/// Finalizer of a HelmChartProxy. It is removed after its releases are deleted.
pub const CHART_PROXY_FINALIZER: &str = "helmchartproxy.addons.cluster.x-k8s.io";
/// Finalizer of a HelmReleaseProxy. It is removed after its release is uninstalled from the workload cluster.
pub const RELEASE_PROXY_FINALIZER: &str = "helmreleaseproxy.addons.cluster.x-k8s.io";
/// Label of a HelmReleaseProxy with the name of its HelmChartProxy.
pub const CHART_PROXY_NAME_LABEL: &str = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name";
/// Annotation of a HelmReleaseProxy whose release name is generated.
pub const RELEASE_NAME_GENERATED_ANNOTATION: &str =
    "helmreleaseproxy.addons.cluster.x-k8s.io/is-release-name-generated";
/// Annotation of a HelmReleaseProxy whose release was installed at least once.
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
    /// Keep the release in sync with the spec.
    Continuous,
}

/// Omits `false` from serialized objects, as the Cluster API add-on provider for Helm does.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// Namespace of a release whose spec has none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Key in a credentials Secret if the reference has none.
pub const DEFAULT_CREDENTIALS_KEY: &str = "config.json";

/// Returns `default` if `text` is empty: an empty field means the same as an unset one.
pub fn or_default(text: &str, default: &str) -> String {
    if text.is_empty() { default } else { text }.to_owned()
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
