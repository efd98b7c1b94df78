//! Checks whether the manager may impersonate the ServiceAccounts of ExtensionInstances.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use chandler_api::extensions::ExtensionInstance;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::{Finding, ManagerIdentity, rights};

const CHECK: &str = "impersonation";

/// Namespace and name of a ServiceAccount.
type Account = (String, String);

pub async fn check(
    client: &Client,
    manager: &ManagerIdentity,
    namespace: Option<&str>,
) -> Result<Vec<Finding>> {
    let instances: Api<ExtensionInstance> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let instances = match instances.list(&ListParams::default()).await {
        // The API server does not serve the kind.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing ExtensionInstances")?,
    };
    let mut findings = Vec::new();
    for ((namespace, account), instance) in accounts(&instances.items) {
        let access = ResourceAttributes {
            verb: Some("impersonate".to_owned()),
            resource: Some("serviceaccounts".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(account.clone()),
            ..ResourceAttributes::default()
        };
        if !rights::is_allowed(client, manager, access).await? {
            findings.push(denied(manager, &namespace, &account, &instance));
        }
    }
    Ok(findings)
}

/// Returns the accounts that are used to read objects in `parametersFrom`, each with one of its instances.
fn accounts(instances: &[ExtensionInstance]) -> BTreeMap<Account, String> {
    let reads_objects = |instance: &&ExtensionInstance| {
        instance.spec.parameters_from.iter().any(|entry| entry.object.is_some())
    };
    let account = |instance: &ExtensionInstance| {
        let account = instance.spec.service_account_name.clone()?;
        Some(((instance.namespace()?, account), instance.name_any()))
    };
    instances.iter().filter(reads_objects).filter_map(account).collect()
}

fn denied(manager: &ManagerIdentity, namespace: &str, account: &str, instance: &str) -> Finding {
    let ManagerIdentity { manager_namespace, service_account } = manager;
    Finding::problem(
        CHECK,
        format!(
            "ExtensionInstance {namespace}/{instance} uses ServiceAccount {account}, which Chandler is not allowed to \
             impersonate"
        ),
        format!(
            "`kubectl create rolebinding chandler-impersonator --clusterrole chandler-impersonator --serviceaccount \
             {manager_namespace}:{service_account} --namespace {namespace}`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn instance(name: &str, spec: Value) -> ExtensionInstance {
        let mut spec = spec;
        spec["extension"] = json!({"name": "hello"});
        spec["clusters"] = json!({"name": "alpha"});
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": name, "namespace": "fleet"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn only_accounts_that_read_objects_are_checked() {
        let object =
            json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "path": "/data"}});
        let secret = json!({"secret": {"name": "x", "key": "y"}});
        let all = [
            instance("plain", json!({"serviceAccountName": "a"})),
            instance("secret", json!({"serviceAccountName": "b", "parametersFrom": [secret]})),
            instance("object", json!({"serviceAccountName": "c", "parametersFrom": [secret, object]})),
            instance("again", json!({"serviceAccountName": "c", "parametersFrom": [object]})),
            instance("no-account", json!({"parametersFrom": [object]})),
        ];
        let found: Vec<_> = accounts(&all).into_keys().collect();
        assert_eq!(found, [("fleet".to_owned(), "c".to_owned())]);
    }
}
