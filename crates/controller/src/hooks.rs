//! The runtime hooks of Cluster API, as a manager serves them.

mod answers;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use chandler_api::extensions::Extension;
use chandler_hooks::{CERTIFICATE_LIFETIME, EXTENSION_CONFIG, Owner, Registration};
pub use chandler_hooks::{Endpoint, FailurePolicy, HookHandler, HookResponse, HookServer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Client, CustomResourceExt as _};

pub use self::answers::{Changing, UnderWay};
use crate::StartupError;

/// Label that the API server puts on every namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// How a manager serves hooks.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Where Cluster API finds that.
    pub endpoint: Endpoint,
    /// What Cluster API does with an upgrade when nobody answers. All else goes on.
    pub before_upgrade: FailurePolicy,
    /// The role that holds Chandler's rights: when it goes, nobody answers any more.
    pub role: String,
}

/// Serves hooks and keeps Cluster API informed while what it returns lives.
///
/// For a leader whose caches are filled: no other process can answer. The ExtensionConfig stays when the manager ends:
/// the next one writes itself into it, and what it protects is not left alone in between.
pub async fn serve(
    client: Client,
    options: HookOptions,
    namespace: Option<&str>,
    watch_filter: Option<&str>,
    answers: Arc<dyn HookHandler>,
) -> Result<HookServer, StartupError> {
    let HookOptions { address, endpoint, before_upgrade, role } = options;
    let registration = Registration {
        name: registered_as(namespace, watch_filter),
        endpoint,
        namespaces: only(namespace),
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
    Ok(chandler_hooks::start(client, options, answers).await?)
}

/// Name of a manager's ExtensionConfig. Managers that look after different objects each have their own.
pub fn registered_as(namespace: Option<&str>, watch_filter: Option<&str>) -> String {
    let parts = [Some(EXTENSION_CONFIG), namespace, watch_filter].into_iter().flatten();
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
}

fn only(namespace: Option<&str>) -> LabelSelector {
    let labels =
        namespace.map(|namespace| BTreeMap::from([(NAMESPACE_LABEL.to_owned(), namespace.to_owned())]));
    LabelSelector { match_labels: labels, match_expressions: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_that_look_after_different_objects_do_not_share_an_extension_config() {
        assert_eq!(registered_as(None, None), "chandler");
        assert_eq!(registered_as(Some("fleet"), None), "chandler-fleet");
        assert_eq!(registered_as(Some("fleet"), Some("Blue")), "chandler-fleet-blue");
        assert_eq!(registered_as(None, Some("blue")), "chandler-blue");
        assert_eq!(registered_as(None, Some("")), "chandler");
    }
}
