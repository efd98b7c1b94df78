//! Serves the runtime hooks of Cluster API.

mod own_namespace;
mod pending_operations;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use chandler_api::extensions::Extension;
use chandler_hooks::{
    CERTIFICATE_LIFETIME, EXTENSION_CONFIG, Owner, Registration, UNREACHABLE_LIMIT, unregister,
};
pub use chandler_hooks::{Caller, Endpoint, FailurePolicy, HookCall, HookHandler, HookResponse, HookServer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Client, CustomResourceExt as _};

use self::own_namespace::only_in;
pub use self::pending_operations::{BusyAddons, PendingOperations};
use crate::StartupError;

/// Label that the API server sets on each namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// How soon the deletion of an ExtensionConfig is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How long a manager that stops tries to delete its ExtensionConfig.
const STOPPING: Duration = Duration::from_secs(2);

/// Options of the hook server.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The endpoint at which Cluster API reaches the address.
    pub endpoint: Endpoint,
    /// Whether that is the address of this manager's Pod, at which no other manager answers.
    pub is_pod: bool,
    /// The failure policy of the hooks before an upgrade or a deletion. All other hooks have the policy `Ignore`.
    pub failure_policy: FailurePolicy,
    /// The ClusterRole of Chandler. It owns the ExtensionConfig, which is deleted together with it.
    pub role: String,
}

/// Serves hooks until the returned value is dropped, and registers them if Cluster API calls hooks.
///
/// Must be called by the leader with filled caches, because no other process can answer. The ExtensionConfig stays when
/// the server stops: see [`on_stop`].
pub async fn serve(
    client: Client,
    options: HookOptions,
    namespace: Option<&str>,
    watch_filter: Option<&str>,
    handler: Arc<dyn HookHandler>,
) -> Result<HookServer, StartupError> {
    let HookOptions { address, endpoint, is_pod: _, failure_policy, role } = options;
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
        failure_policy,
        certificate_lifetime: CERTIFICATE_LIFETIME,
        unreachable_limit: UNREACHABLE_LIMIT,
    };
    Ok(chandler_hooks::start(client, options, only_in(namespace, handler)).await?)
}

impl HookOptions {
    /// Returns whether the registration protects nothing once this manager has stopped: the address is gone, and Cluster API
    /// proceeds if no manager answers.
    fn ends_with_manager(&self) -> bool {
        self.is_pod && self.failure_policy == FailurePolicy::Ignore
    }
}

/// Deletes the ExtensionConfig if it protects nothing once this manager has stopped. Cluster API does not start while an
/// ExtensionConfig exists that no manager answers.
///
/// Must be called by the leader, before another one can register its hooks.
pub async fn on_stop(
    client: Client,
    options: Option<HookOptions>,
    namespace: Option<String>,
    watch_filter: Option<String>,
) {
    if !options.is_some_and(|options| options.ends_with_manager()) {
        return;
    }
    let name = extension_config_name(namespace.as_deref(), watch_filter.as_deref());
    match tokio::time::timeout(STOPPING, unregister(&client, &name)).await {
        Ok(Ok(())) => tracing::info!(name, "the hooks are unregistered, because this manager stops"),
        Ok(Err(error)) => tracing::warn!(%error, "the hooks stay registered although this manager stops"),
        Err(_) => tracing::warn!(name, "the hooks stay registered: the API server does not answer in time"),
    }
}

/// Deletes the ExtensionConfig of an earlier manager, because this leader serves no hooks: Cluster API does not start while an
/// ExtensionConfig exists that no manager answers.
pub async fn unregister_earlier(client: Client, namespace: Option<String>, watch_filter: Option<String>) {
    let name = extension_config_name(namespace.as_deref(), watch_filter.as_deref());
    while let Err(error) = unregister(&client, &name).await {
        if error.is_forbidden() {
            // Most likely no earlier manager had hooks either. `chandler doctor` reports an ExtensionConfig that is left.
            tracing::info!(%error, "the ExtensionConfig of an earlier manager, if there is one, is left");
            return;
        }
        tracing::warn!(%error, "cannot unregister the hooks of an earlier manager; retrying");
        tokio::time::sleep(RETRY).await;
    }
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
    fn a_registration_ends_with_its_manager_if_it_protects_nothing_without_it() {
        let rows = [
            (true, FailurePolicy::Ignore, true),
            (true, FailurePolicy::Fail, false),
            (false, FailurePolicy::Ignore, false),
            (false, FailurePolicy::Fail, false),
        ];
        for (is_pod, failure_policy, expected) in rows {
            let options = HookOptions {
                address: ([127, 0, 0, 1], 9443).into(),
                endpoint: Endpoint::url("https://127.0.0.1:9443").unwrap(),
                is_pod,
                failure_policy,
                role: "chandler-system-manager".to_owned(),
            };
            assert_eq!(options.ends_with_manager(), expected, "{is_pod} {failure_policy:?}");
        }
    }

    #[test]
    fn managers_of_different_objects_have_different_extension_configs() {
        assert_eq!(extension_config_name(None, None), "chandler");
        assert_eq!(extension_config_name(Some("fleet"), None), "chandler-fleet");
        assert_eq!(extension_config_name(Some("fleet"), Some("Blue")), "chandler-fleet-blue");
        assert_eq!(extension_config_name(None, Some("blue")), "chandler-blue");
        assert_eq!(extension_config_name(None, Some("")), "chandler");
    }
}
