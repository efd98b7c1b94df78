//! Whether the manager's ServiceAccount may do what `deploy/rbac.yaml` grants.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;

use super::{Finding, ManagerPlace};

const CHECK: &str = "rights";
const RIGHTS: &str = include_str!("../../../../deploy/rbac.yaml");
/// Questions asked at once.
const ABREAST: usize = 16;
/// Missing rights that are named; the rest are counted.
const NAMED: usize = 5;

/// The role that may be bound in single namespaces instead of all.
const NAMESPACED: &str = "chandler-system-manager";

/// A document of the file, as far as it matters here.
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

/// `namespace`: the one that the manager looks after. None: all.
pub async fn check(client: &Client, manager: &ManagerPlace, namespace: Option<&str>) -> Result<Vec<Finding>> {
    let questions = questions(RIGHTS, &manager.manager_namespace, namespace)?;
    let asked = questions.len();
    let answers: Vec<Option<String>> = stream::iter(questions)
        .map(|question| async {
            let words = words(&question);
            anyhow::Ok((!may(client, manager, question).await?).then_some(words))
        })
        .buffered(ABREAST)
        .try_collect()
        .await?;
    Ok(vec![judge(manager, asked, &answers.into_iter().flatten().collect::<Vec<_>>())])
}

/// Whether the manager's ServiceAccount may do it.
pub async fn may(client: &Client, manager: &ManagerPlace, question: ResourceAttributes) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let ManagerPlace { manager_namespace: namespace, service_account } = manager;
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{service_account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(question),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.context("asking what the manager's ServiceAccount may do")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// One question per group, resource, name and verb of every rule of the roles that are bound.
fn questions(yaml: &str, own: &str, namespace: Option<&str>) -> Result<Vec<ResourceAttributes>> {
    let (yaml, namespaced) =
        (yaml.replace("chandler-system", own), NAMESPACED.replace("chandler-system", own));
    let documents: Vec<Document> = serde_saphyr::from_multiple(&yaml).context("reading deploy/rbac.yaml")?;
    let bound: BTreeSet<&str> =
        documents.iter().filter_map(|document| Some(&*document.role_ref.as_ref()?.name)).collect();
    let mut questions = Vec::new();
    for document in documents.iter().filter(|document| bound.contains(&*document.metadata.name)) {
        let place = match (&*document.kind, &*document.metadata.name) {
            ("Role", _) => Some(own),
            (_, name) if name == namespaced => namespace,
            _ => None,
        };
        for rule in &document.rules {
            questions.extend(of_rule(rule, place));
        }
    }
    Ok(questions)
}

fn of_rule(rule: &PolicyRule, namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        Some(names) if !names.is_empty() => names.iter().cloned().map(Some).collect(),
        _ => vec![None],
    };
    let mut questions = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            for (name, verb) in names.iter().flat_map(|name| rule.verbs.iter().map(move |verb| (name, verb)))
            {
                questions.push(ResourceAttributes {
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
    questions
}

fn words(question: &ResourceAttributes) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let subresource = question.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let resource = format!("{} {}{subresource}", text(&question.verb), text(&question.resource));
    match question.group.as_deref() {
        None | Some("") => resource,
        Some(group) => format!("{resource} ({group})"),
    }
}

fn judge(manager: &ManagerPlace, asked: usize, missing: &[String]) -> Finding {
    let account = format!("ServiceAccount {}/{}", manager.manager_namespace, manager.service_account);
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{account} has all {asked} rights"));
    }
    let more = missing.len().saturating_sub(NAMED);
    let named = missing.iter().take(NAMED).cloned().chain((more > 0).then(|| format!("and {more} more")));
    Finding::problem(
        CHECK,
        format!("{account} may not: {}", named.collect::<Vec<_>>().join(", ")),
        "`kubectl apply --server-side -f deploy/rbac.yaml`; if the manager runs as someone else, say so with \
         --manager-namespace and --service-account, and if it looks after one namespace, with --namespace",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn every_rule_is_asked_about() {
        let asked: Vec<_> = questions(RIGHTS, "elsewhere", None).unwrap();
        let all: Vec<_> = asked.iter().map(words).collect();
        for right in [
            "watch helmchartproxies (addons.cluster.x-k8s.io)",
            "patch helmreleaseproxies/status (addons.cluster.x-k8s.io)",
            "get secrets",
            "watch * (infrastructure.cluster.x-k8s.io)",
        ] {
            assert!(all.iter().any(|words| words == right), "{right}: {all:?}");
        }
        let lease = asked.iter().find(|question| question.name.is_some()).unwrap();
        assert_eq!(lease.name.as_deref(), Some("controller-leader-election-caaph"));
        let own: Vec<_> = asked.iter().filter(|question| question.namespace.is_some()).map(words).collect();
        assert_eq!(
            own,
            ["get", "create", "update"].map(|verb| format!("{verb} leases (coordination.k8s.io)"))
        );
        assert!(!all.iter().any(|words| words.contains("impersonate")), "it is bound to nobody: {all:?}");
    }

    #[test]
    fn a_manager_of_one_namespace_needs_its_rights_there() {
        let asked = questions(RIGHTS, "elsewhere", Some("fleet")).unwrap();
        let place = |right: &str| {
            asked.iter().find(|question| words(question) == right).and_then(|found| found.namespace.clone())
        };
        assert_eq!(place("get secrets").as_deref(), Some("fleet"));
        assert_eq!(place("get customresourcedefinitions (apiextensions.k8s.io)"), None);
    }

    #[test]
    fn missing_rights_are_named() {
        let manager = ManagerPlace { manager_namespace: "a".to_owned(), service_account: "b".to_owned() };
        assert_eq!(judge(&manager, 9, &[]).verdict, Verdict::Ok);
        let found = judge(&manager, 9, &vec!["get secrets".to_owned(); 7]);
        assert_eq!(found.verdict, Verdict::Problem);
        assert!(found.message.ends_with("get secrets, and 2 more"), "{}", found.message);
    }
}
