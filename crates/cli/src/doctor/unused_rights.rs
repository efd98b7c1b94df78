//! Checks which permissions of the manager could be removed, because no object needs them.

use std::{collections::BTreeSet, fmt::Debug};

use anyhow::Result;
use chandler_api::{
    addons::FleetAddonConfig,
    extensions::{AddonPolicy, ExtensionInstance, SyncObject},
    tunnel::ClusterTunnel,
};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject},
};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Finding, ManagerIdentity, list, rights};

const CHECK: &str = "unused-rights";
const IMPERSONATOR: &str = "chandler-impersonator";

/// What the objects on the management cluster need, and what the manager has.
#[derive(Debug, Default)]
struct Usage {
    /// Whether the manager may create Secrets in all namespaces.
    can_create_secrets: bool,
    /// Whether an object can make it necessary to write Secrets.
    writes_secrets: bool,
    /// Whether the manager may write objects of Fleet.
    can_use_fleet: bool,
    has_fleet: bool,
    /// Whether the role for impersonation is bound for all namespaces.
    impersonates_everywhere: bool,
    /// Namespaces in which it is bound.
    impersonates_in: BTreeSet<String>,
    /// Namespaces with objects that need it.
    needs_impersonation_in: BTreeSet<String>,
}

/// Checks the permissions of the manager.
pub async fn check(client: &Client, manager: &ManagerIdentity) -> Result<Vec<Finding>> {
    Ok(evaluate(&read(client, manager).await?))
}

async fn read(client: &Client, manager: &ManagerIdentity) -> Result<Usage> {
    let instances: Vec<ExtensionInstance> = list_all(client).await?;
    let syncs: Vec<SyncObject> = list_all(client).await?;
    let policies: Vec<AddonPolicy> = list_all(client).await?;
    let tunnels: Vec<ClusterTunnel> = list_all(client).await?;
    let fleet: Vec<FleetAddonConfig> = list_all(client).await?;
    let bindings: Vec<RoleBinding> = list_all(client).await?;
    let cluster_bindings: Vec<ClusterRoleBinding> = list_all(client).await?;
    let reads_objects = |instance: &&ExtensionInstance| {
        instance.spec.parameters_from.iter().any(|from| from.object.is_some() || from.objects.is_some())
    };
    let readers = instances.iter().filter(reads_objects).filter_map(ResourceExt::namespace);
    let needs_impersonation_in = readers.chain(syncs.iter().filter_map(ResourceExt::namespace));
    let bound =
        bindings.iter().filter(|one| is_impersonator(manager, &one.role_ref, one.subjects.as_deref()));
    let mut everywhere = cluster_bindings
        .iter()
        .filter(|one| is_impersonator(manager, &one.role_ref, one.subjects.as_deref()));
    Ok(Usage {
        can_create_secrets: is_allowed(client, manager, "create", "", "secrets").await?,
        writes_secrets: !instances.is_empty()
            || !tunnels.is_empty()
            || policies.iter().any(|policy| !policy.spec.values_from.is_empty()),
        can_use_fleet: is_allowed(client, manager, "create", "fleet.cattle.io", "clusters").await?,
        has_fleet: !fleet.is_empty(),
        impersonates_everywhere: everywhere.next().is_some(),
        impersonates_in: bound.filter_map(ResourceExt::namespace).collect(),
        needs_impersonation_in: needs_impersonation_in.collect(),
    })
}

async fn is_allowed(
    client: &Client,
    manager: &ManagerIdentity,
    verb: &str,
    group: &str,
    resource: &str,
) -> Result<bool> {
    let access = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        ..ResourceAttributes::default()
    };
    rights::is_allowed(client, manager, access).await
}

async fn list_all<K>(client: &Client) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    list(Api::all(client.clone()), &K::plural(&())).await
}

/// Returns whether a binding lets the manager impersonate ServiceAccounts.
fn is_impersonator(manager: &ManagerIdentity, role: &RoleRef, subjects: Option<&[Subject]>) -> bool {
    let ManagerIdentity { manager_namespace, service_account } = manager;
    let is_manager = |subject: &Subject| {
        subject.name == *service_account && subject.namespace.as_ref() == Some(manager_namespace)
    };
    role.name == IMPERSONATOR && subjects.is_some_and(|subjects| subjects.iter().any(is_manager))
}

fn evaluate(usage: &Usage) -> Vec<Finding> {
    let mut findings = Vec::new();
    if usage.impersonates_everywhere {
        findings.push(Finding::warning(
            CHECK,
            "the manager may impersonate the ServiceAccounts of all namespaces: a ClusterRoleBinding binds \
             chandler-impersonator",
            "bind it with a RoleBinding in each namespace that needs it instead",
        ));
    }
    for namespace in usage.impersonates_in.difference(&usage.needs_impersonation_in) {
        findings.push(Finding::hint(
            CHECK,
            format!(
                "no Sync and no parametersFrom[].object in namespace {namespace} needs ClusterRole chandler-impersonator"
            ),
            format!("delete its RoleBinding in namespace {namespace}"),
        ));
    }
    if usage.can_use_fleet && !usage.has_fleet {
        findings.push(Finding::hint(
            CHECK,
            "there is no FleetAddonConfig, so the manager does not need ClusterRole chandler-system-fleet",
            "set fleet.enabled of the chart to false, or delete the ClusterRoleBinding",
        ));
    }
    if usage.can_create_secrets && !usage.writes_secrets {
        findings.push(Finding::hint(
            CHECK,
            "there is no ExtensionInstance, no AddonPolicy with valuesFrom and no ClusterTunnel, so the manager does not need \
             create and patch of secrets",
            "remove these verbs from ClusterRole chandler-system-manager",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn rights_that_no_object_needs_are_named() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let all = Usage { can_create_secrets: true, can_use_fleet: true, ..Usage::default() };
        let rows = [
            (Usage::default(), vec![]),
            (Usage { writes_secrets: true, has_fleet: true, ..all }, vec![]),
            (Usage { can_use_fleet: true, ..Usage::default() }, vec!["chandler-system-fleet"]),
            (Usage { can_create_secrets: true, ..Usage::default() }, vec!["create and patch of secrets"]),
            (
                Usage {
                    impersonates_in: set(&["fleet", "idle"]),
                    needs_impersonation_in: set(&["fleet"]),
                    ..Usage::default()
                },
                vec!["in namespace idle"],
            ),
            (Usage { impersonates_everywhere: true, ..Usage::default() }, vec!["all namespaces"]),
        ];
        for (usage, expected) in rows {
            let found = evaluate(&usage);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (finding, expected) in found.iter().zip(expected) {
                assert!(finding.message.contains(expected) && finding.next_step.is_some(), "{finding:?}");
                assert_ne!(finding.severity, Severity::Problem);
            }
        }
    }

    #[test]
    fn only_bindings_of_the_manager_count() {
        let manager = ManagerIdentity { manager_namespace: "a".to_owned(), service_account: "b".to_owned() };
        let role = |name: &str| RoleRef { name: name.to_owned(), ..RoleRef::default() };
        let subject = |namespace: &str| Subject {
            name: "b".to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        };
        assert!(is_impersonator(&manager, &role(IMPERSONATOR), Some(&[subject("x"), subject("a")])));
        assert!(!is_impersonator(&manager, &role(IMPERSONATOR), Some(&[subject("x")])));
        assert!(!is_impersonator(&manager, &role("other"), Some(&[subject("a")])));
        assert!(!is_impersonator(&manager, &role(IMPERSONATOR), None));
    }
}
