//! Checks whether the manager may impersonate the ServiceAccounts of ExtensionInstances and Syncs.

use std::collections::BTreeMap;

use anyhow::Result;
use chandler_api::extensions::{ExtensionInstance, SyncObject};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Client, ResourceExt as _};

use super::{Finding, ManagerIdentity, api, list, rights};

const CHECK: &str = "impersonation";

/// Namespace and name of a ServiceAccount.
type Account = (String, String);

pub async fn check(
    client: &Client,
    manager: &ManagerIdentity,
    namespace: Option<&str>,
) -> Result<Vec<Finding>> {
    let instances: Vec<ExtensionInstance> = list(api(client, namespace), "ExtensionInstances").await?;
    let syncs: Vec<SyncObject> = list(api(client, namespace), "Syncs").await?;
    let users = accounts(&instances).into_iter().chain(sync_accounts(&syncs));
    let mut findings = Vec::new();
    for ((namespace, account), user) in users.collect::<BTreeMap<_, _>>() {
        let access = ResourceAttributes {
            verb: Some("impersonate".to_owned()),
            resource: Some("serviceaccounts".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(account.clone()),
            ..ResourceAttributes::default()
        };
        if !rights::is_allowed(client, manager, access).await? {
            findings.push(denied(manager, &namespace, &account, &user));
        }
    }
    Ok(findings)
}

/// Returns the accounts of Syncs, each with one of its Syncs.
fn sync_accounts(syncs: &[SyncObject]) -> BTreeMap<Account, String> {
    let account = |sync: &SyncObject| {
        let (namespace, account) = (sync.namespace()?, sync.spec.service_account_name.clone());
        let user = format!("Sync {namespace}/{}", sync.name_any());
        Some(((namespace, account), user))
    };
    syncs.iter().filter_map(account).collect()
}

/// Returns the accounts that are used to read objects in `parametersFrom`, each with one of its instances.
fn accounts(instances: &[ExtensionInstance]) -> BTreeMap<Account, String> {
    let reads_objects = |instance: &&ExtensionInstance| {
        instance.spec.parameters_from.iter().any(|entry| entry.object.is_some())
    };
    let account = |instance: &ExtensionInstance| {
        let (namespace, account) = (instance.namespace()?, instance.spec.service_account_name.clone()?);
        let user = format!("ExtensionInstance {namespace}/{}", instance.name_any());
        Some(((namespace, account), user))
    };
    instances.iter().filter(reads_objects).filter_map(account).collect()
}

fn denied(manager: &ManagerIdentity, namespace: &str, account: &str, user: &str) -> Finding {
    let ManagerIdentity { manager_namespace, service_account } = manager;
    Finding::problem(
        CHECK,
        format!("{user} uses ServiceAccount {account}, which Chandler is not allowed to impersonate"),
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

    #[test]
    fn accounts_of_syncs_are_checked() {
        let sync: SyncObject = serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "base", "namespace": "fleet"},
            "spec": {"source": {"sourceRef": {"name": "git"}}, "serviceAccountName": "deployer"},
        }))
        .unwrap();
        let account = ("fleet".to_owned(), "deployer".to_owned());
        assert_eq!(sync_accounts(&[sync]), BTreeMap::from([(account, "Sync fleet/base".to_owned())]));
    }
}
