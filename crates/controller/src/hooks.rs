//! Serves the runtime hooks of Cluster API.

mod pending_operations;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use chandler_api::extensions::Extension;
use chandler_hooks::{CERTIFICATE_LIFETIME, EXTENSION_CONFIG, Owner, Registration};
pub use chandler_hooks::{Endpoint, FailurePolicy, HookHandler, HookResponse, HookServer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Client, CustomResourceExt as _};

pub use self::pending_operations::{BusyAddons, PendingOperations};
use crate::StartupError;

/// Label that the API server sets on each namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Options of the hook server.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The endpoint at which Cluster API reaches the address.
    pub endpoint: Endpoint,
    /// The failure policy of the hooks before an upgrade. All other hooks have the policy `Ignore`.
    pub before_upgrade: FailurePolicy,
    /// The ClusterRole of Chandler. It owns the ExtensionConfig, which is deleted together with it.
    pub role: String,
}

/// Serves hooks until the returned value is dropped, and registers them if Cluster API calls hooks.
///
/// Must be called by the leader with filled caches, because no other process can answer. The ExtensionConfig stays when
/// the manager stops, so that Cluster API calls the next manager as soon as it answers.
pub async fn serve(
    client: Client,
    options: HookOptions,
    namespace: Option<&str>,
    watch_filter: Option<&str>,
    handler: Arc<dyn HookHandler>,
) -> Result<HookServer, StartupError> {
    let HookOptions { address, endpoint, before_upgrade, role } = options;
    let registration = Registration {
        name: extension_config_name(namespace, watch_filter),
        endpoint,
        namespaces: namespace_selector(namespace),
        owners: vec![
            Owner::ClusterRole(role),
            Owner::CustomResourceDefinition(Extension::crd_name().to_owned()),
        ],
    };
    let options = chandler_hooks::Options {
        address,
        registration,
        before_upgrade,
        certificate_lifetime: CERTIFICATE_LIFETIME,
    };
    Ok(chandler_hooks::start(client, options, handler).await?)
}

/// Returns the name of a manager's ExtensionConfig. Managers of different namespaces or watch filters have different
/// names.
pub fn extension_config_name(namespace: Option<&str>, watch_filter: Option<&str>) -> String {
    let parts = [Some(EXTENSION_CONFIG), namespace, watch_filter].into_iter().flatten();
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
}

fn namespace_selector(namespace: Option<&str>) -> LabelSelector {
    let labels =
        namespace.map(|namespace| BTreeMap::from([(NAMESPACE_LABEL.to_owned(), namespace.to_owned())]));
    LabelSelector { match_labels: labels, match_expressions: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_of_different_objects_have_different_extension_configs() {
        assert_eq!(extension_config_name(None, None), "chandler");
        assert_eq!(extension_config_name(Some("fleet"), None), "chandler-fleet");
        assert_eq!(extension_config_name(Some("fleet"), Some("Blue")), "chandler-fleet-blue");
        assert_eq!(extension_config_name(None, Some("blue")), "chandler-blue");
        assert_eq!(extension_config_name(None, Some("")), "chandler");
    }
}
