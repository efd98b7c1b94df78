//! Whether the manager may act as each ServiceAccount with whose rights an instance reads.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use chandler_api::extensions::ExtensionInstance;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::{Finding, ManagerPlace, rights};

const CHECK: &str = "impersonation";

/// A ServiceAccount.
type Account = (String, String);

pub async fn check(client: &Client, manager: &ManagerPlace, namespace: Option<&str>) -> Result<Vec<Finding>> {
    let instances: Api<ExtensionInstance> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let instances = match instances.list(&ListParams::default()).await {
        // The kind is not served: there are none.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing ExtensionInstances")?,
    };
    let mut findings = Vec::new();
    for ((namespace, account), instance) in readers(&instances.items) {
        let question = ResourceAttributes {
            verb: Some("impersonate".to_owned()),
            resource: Some("serviceaccounts".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(account.clone()),
            ..ResourceAttributes::default()
        };
        if !rights::may(client, manager, question).await? {
            findings.push(refused(manager, &namespace, &account, &instance));
        }
    }
    Ok(findings)
}

/// The accounts that are read with, and an instance that does.
fn readers(instances: &[ExtensionInstance]) -> BTreeMap<Account, String> {
    let reads = |instance: &&ExtensionInstance| {
        instance.spec.parameters_from.iter().any(|entry| entry.object.is_some())
    };
    let account = |instance: &ExtensionInstance| {
        let account = instance.spec.service_account_name.clone()?;
        Some(((instance.namespace()?, account), instance.name_any()))
    };
    instances.iter().filter(reads).filter_map(account).collect()
}

fn refused(manager: &ManagerPlace, namespace: &str, account: &str, instance: &str) -> Finding {
    let ManagerPlace { manager_namespace, service_account } = manager;
    Finding::problem(
        CHECK,
        format!(
            "ExtensionInstance {namespace}/{instance} reads as ServiceAccount {account}, and Chandler may not act as \
             it"
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
    fn only_accounts_that_are_read_with_matter() {
        let object =
            json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "path": "/data"}});
        let secret = json!({"secret": {"name": "x", "key": "y"}});
        let all = [
            instance("plain", json!({"serviceAccountName": "a"})),
            instance("secret", json!({"serviceAccountName": "b", "parametersFrom": [secret]})),
            instance("object", json!({"serviceAccountName": "c", "parametersFrom": [secret, object]})),
            instance("again", json!({"serviceAccountName": "c", "parametersFrom": [object]})),
            instance("nobody", json!({"parametersFrom": [object]})),
        ];
        let found: Vec<_> = readers(&all).into_keys().collect();
        assert_eq!(found, [("fleet".to_owned(), "c".to_owned())]);
    }
}
