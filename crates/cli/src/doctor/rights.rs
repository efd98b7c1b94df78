//! Checks whether the manager's ServiceAccount has the permissions in `deploy/rbac.yaml`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;

use super::{Finding, ManagerIdentity};

const CHECK: &str = "rights";
const RBAC_MANIFEST: &str = include_str!("../../../../deploy/rbac.yaml");
/// Maximum number of concurrent `SubjectAccessReviews`.
const CONCURRENCY: usize = 16;
/// Maximum number of missing permissions that are listed. The rest are counted.
const MAX_LISTED: usize = 5;

/// The role that can be bound per namespace instead of for all namespaces.
const NAMESPACED_ROLE: &str = "chandler-system-manager";

/// The relevant fields of a document of the manifest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<PolicyRule>,
    role_ref: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// Checks the permissions of a manager for this namespace. `None` means all namespaces.
pub async fn check(
    client: &Client,
    manager: &ManagerIdentity,
    namespace: Option<&str>,
) -> Result<Vec<Finding>> {
    let required = required_access(RBAC_MANIFEST, &manager.manager_namespace, namespace)?;
    let count = required.len();
    let denied: Vec<Option<String>> = stream::iter(required)
        .map(|access| async {
            let description = describe(&access);
            anyhow::Ok((!is_allowed(client, manager, access).await?).then_some(description))
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(vec![evaluate(manager, count, &denied.into_iter().flatten().collect::<Vec<_>>())])
}

/// Returns whether the manager's ServiceAccount has this permission.
pub async fn is_allowed(
    client: &Client,
    manager: &ManagerIdentity,
    access: ResourceAttributes,
) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let ManagerIdentity { manager_namespace: namespace, service_account } = manager;
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{service_account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(access),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let review = reviews.create(&PostParams::default(), &review).await;
    let review = review.context("reviewing the permissions of the manager's ServiceAccount")?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

/// Returns each combination of group, resource, name and verb in the rules of the roles that are bound.
/// `manager_namespace` is the manager's own namespace.
fn required_access(
    yaml: &str,
    manager_namespace: &str,
    namespace: Option<&str>,
) -> Result<Vec<ResourceAttributes>> {
    let (yaml, namespaced_role) = (
        yaml.replace("chandler-system", manager_namespace),
        NAMESPACED_ROLE.replace("chandler-system", manager_namespace),
    );
    let documents: Vec<Document> = serde_saphyr::from_multiple(&yaml).context("reading deploy/rbac.yaml")?;
    let bound: BTreeSet<&str> =
        documents.iter().filter_map(|document| Some(&*document.role_ref.as_ref()?.name)).collect();
    let mut required = Vec::new();
    for document in documents.iter().filter(|document| bound.contains(&*document.metadata.name)) {
        let scope = match (&*document.kind, &*document.metadata.name) {
            ("Role", _) => Some(manager_namespace),
            (_, name) if name == namespaced_role => namespace,
            _ => None,
        };
        for rule in &document.rules {
            required.extend(rule_access(rule, scope));
        }
    }
    Ok(required)
}

fn rule_access(rule: &PolicyRule, namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        Some(names) if !names.is_empty() => names.iter().cloned().map(Some).collect(),
        _ => vec![None],
    };
    let mut required = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            for (name, verb) in names.iter().flat_map(|name| rule.verbs.iter().map(move |verb| (name, verb)))
            {
                required.push(ResourceAttributes {
                    group: Some(group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: subresource.clone(),
                    name: name.clone(),
                    verb: Some(verb.clone()),
                    namespace: namespace.map(str::to_owned),
                    ..ResourceAttributes::default()
                });
            }
        }
    }
    required
}

fn describe(access: &ResourceAttributes) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let subresource = access.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let resource = format!("{} {}{subresource}", text(&access.verb), text(&access.resource));
    match access.group.as_deref() {
        None | Some("") => resource,
        Some(group) => format!("{resource} ({group})"),
    }
}

fn evaluate(manager: &ManagerIdentity, count: usize, missing: &[String]) -> Finding {
    let account = format!("ServiceAccount {}/{}", manager.manager_namespace, manager.service_account);
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{account} has all {count} permissions"));
    }
    let more = missing.len().saturating_sub(MAX_LISTED);
    let listed =
        missing.iter().take(MAX_LISTED).cloned().chain((more > 0).then(|| format!("and {more} more")));
    Finding::problem(
        CHECK,
        format!("{account} lacks permissions: {}", listed.collect::<Vec<_>>().join(", ")),
        "`kubectl apply --server-side -f deploy/rbac.yaml`; if the manager uses another ServiceAccount, set \
         --manager-namespace and --service-account; if it reconciles only one namespace, set --namespace",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn every_rule_is_checked() {
        let required: Vec<_> = required_access(RBAC_MANIFEST, "elsewhere", None).unwrap();
        let all: Vec<_> = required.iter().map(describe).collect();
        for permission in [
            "watch helmchartproxies (addons.cluster.x-k8s.io)",
            "patch helmreleaseproxies/status (addons.cluster.x-k8s.io)",
            "get secrets",
            "watch * (infrastructure.cluster.x-k8s.io)",
        ] {
            assert!(all.iter().any(|description| description == permission), "{permission}: {all:?}");
        }
        let lease = required.iter().find(|access| access.name.is_some()).unwrap();
        assert_eq!(lease.name.as_deref(), Some("controller-leader-election-caaph"));
        let namespaced: Vec<_> =
            required.iter().filter(|access| access.namespace.is_some()).map(describe).collect();
        assert_eq!(
            namespaced,
            [
                "get leases (coordination.k8s.io)",
                "create leases (coordination.k8s.io)",
                "update leases (coordination.k8s.io)",
                "get services",
                "create endpointslices (discovery.k8s.io)",
                // One for each of the two names.
                "patch endpointslices (discovery.k8s.io)",
                "patch endpointslices (discovery.k8s.io)",
            ]
        );
        assert!(
            !all.iter().any(|description| description.contains("impersonate")),
            "its role is not bound: {all:?}"
        );
    }

    #[test]
    fn permissions_can_be_limited_to_a_namespace() {
        let required = required_access(RBAC_MANIFEST, "elsewhere", Some("fleet")).unwrap();
        let namespace = |permission: &str| {
            required
                .iter()
                .find(|access| describe(access) == permission)
                .and_then(|access| access.namespace.clone())
        };
        assert_eq!(namespace("get secrets").as_deref(), Some("fleet"));
        assert_eq!(namespace("get customresourcedefinitions (apiextensions.k8s.io)"), None);
    }

    #[test]
    fn missing_permissions_are_listed() {
        let manager = ManagerIdentity { manager_namespace: "a".to_owned(), service_account: "b".to_owned() };
        assert_eq!(evaluate(&manager, 9, &[]).severity, Severity::Ok);
        let found = evaluate(&manager, 9, &vec!["get secrets".to_owned(); 7]);
        assert_eq!(found.severity, Severity::Problem);
        assert!(found.message.ends_with("get secrets, and 2 more"), "{}", found.message);
    }
}
