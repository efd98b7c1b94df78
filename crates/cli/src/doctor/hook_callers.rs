//! Checks whether the NetworkPolicy of the chart admits Cluster API, and only it, to the hooks.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::{
    Api, Client, ResourceExt as _,
    core::{Selector, SelectorExt as _},
};

use super::{Finding, cluster_api};

const CHECK: &str = "hooks";
/// The NetworkPolicy of the chart.
const POLICY: &str = "chandler-manager";
/// The port of the hooks in the Deployment of the chart.
const PORT: (&str, i32) = ("hooks", 9443);

type Labels = BTreeMap<String, String>;

/// The Pods of Cluster API's core controllers.
#[derive(Clone, Debug)]
struct Caller {
    namespace: String,
    namespace_labels: Labels,
    labels: Labels,
}

/// Who may call the hooks, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Refused,
    /// By address, which says nothing about Pods.
    Unknown,
    Admitted,
    /// All Pods are admitted.
    Everyone,
}

/// Checks the NetworkPolicy in the namespace of the manager.
pub async fn check(client: &Client, manager_namespace: &str) -> Result<Vec<Finding>> {
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), manager_namespace);
    let policy = policies.get_opt(POLICY).await;
    let policy = policy.with_context(|| format!("reading NetworkPolicy {manager_namespace}/{POLICY}"))?;
    let Some(policy) = policy else { return Ok(Vec::new()) };
    let callers = callers(client).await?;
    Ok(callers.iter().filter_map(|caller| evaluate(&policy, manager_namespace, caller)).collect())
}

async fn callers(client: &Client) -> Result<Vec<Caller>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut callers = Vec::new();
    for deployment in cluster_api::deployments(client).await? {
        let namespace = deployment.namespace().unwrap_or_default();
        let read = namespaces.get(&namespace).await;
        let read = read.with_context(|| format!("reading Namespace {namespace}"))?;
        let template = deployment.spec.and_then(|spec| spec.template.metadata).unwrap_or_default();
        callers.push(Caller {
            namespace,
            namespace_labels: read.labels().clone(),
            labels: template.labels.unwrap_or_default(),
        });
    }
    Ok(callers)
}

fn evaluate(policy: &NetworkPolicy, policy_namespace: &str, caller: &Caller) -> Option<Finding> {
    let namespace = &caller.namespace;
    let next_step = format!(
        "set value networkPolicy.hooksFrom of the chart to [{{namespaceSelector: {{matchLabels: \
         {{kubernetes.io/metadata.name: {namespace}}}}}}}], or the variable CHANDLER_CLUSTER_API_NAMESPACE of the clusterctl \
         components to {namespace}"
    );
    match access(policy, policy_namespace, caller) {
        Access::Refused => {
            let message = format!(
                "Cluster API runs in namespace {namespace}, but NetworkPolicy {policy_namespace}/{POLICY} does not \
                 admit that namespace, so the hooks cannot be called"
            );
            Some(Finding::warning(CHECK, message, next_step))
        }
        Access::Everyone => {
            let message = format!(
                "NetworkPolicy {policy_namespace}/{POLICY} lets all Pods call the hooks; only Cluster API in namespace \
                 {namespace} needs to"
            );
            Some(Finding::hint(CHECK, message, next_step))
        }
        Access::Admitted => {
            let message = format!(
                "NetworkPolicy {policy_namespace}/{POLICY} lets Cluster API in namespace {namespace} call the hooks"
            );
            Some(Finding::ok(CHECK, message))
        }
        Access::Unknown => None,
    }
}

/// Returns the widest access that a rule for the hooks grants.
fn access(policy: &NetworkPolicy, policy_namespace: &str, caller: &Caller) -> Access {
    let rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
    let rules = rules.filter(|rule| includes_hooks(rule));
    rules.map(|rule| granted(rule, policy_namespace, caller)).max().unwrap_or(Access::Refused)
}

fn includes_hooks(rule: &NetworkPolicyIngressRule) -> bool {
    let is_hooks = |port: &NetworkPolicyPort| match &port.port {
        None => true,
        Some(IntOrString::String(name)) => name == PORT.0,
        Some(IntOrString::Int(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&PORT.1),
    };
    rule.ports.as_ref().is_none_or(|ports| ports.is_empty() || ports.iter().any(is_hooks))
}

fn granted(rule: &NetworkPolicyIngressRule, policy_namespace: &str, caller: &Caller) -> Access {
    match rule.from.as_deref() {
        None | Some([]) => Access::Everyone,
        Some(peers) => {
            let granted = peers.iter().map(|peer| granted_to(peer, policy_namespace, caller));
            granted.max().unwrap_or(Access::Refused)
        }
    }
}

fn granted_to(peer: &NetworkPolicyPeer, policy_namespace: &str, caller: &Caller) -> Access {
    if peer.ip_block.is_some() {
        return Access::Unknown;
    }
    let is_all = |selector: &LabelSelector| *selector == LabelSelector::default();
    let pods = peer.pod_selector.as_ref();
    if peer.namespace_selector.as_ref().is_some_and(is_all) && pods.is_none_or(is_all) {
        return Access::Everyone;
    }
    let in_namespace = match &peer.namespace_selector {
        Some(selector) => matches(selector, &caller.namespace_labels),
        None => caller.namespace == policy_namespace,
    };
    if in_namespace && pods.is_none_or(|selector| matches(selector, &caller.labels)) {
        Access::Admitted
    } else {
        Access::Refused
    }
}

fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::Severity;

    fn policy(ingress: &Value) -> NetworkPolicy {
        serde_json::from_value(
            json!({"metadata": {"name": POLICY}, "spec": {"podSelector": {}, "ingress": ingress}}),
        )
        .unwrap()
    }

    fn caller(namespace: &str) -> Caller {
        let labels = |name: &str, value: &str| Labels::from([(name.to_owned(), value.to_owned())]);
        Caller {
            namespace: namespace.to_owned(),
            namespace_labels: labels("kubernetes.io/metadata.name", namespace),
            labels: labels("control-plane", "controller-manager"),
        }
    }

    #[test]
    fn the_access_of_cluster_api_is_read_off_the_policy() {
        let hooks = |from: &Value| json!([{"from": from, "ports": [{"port": "hooks"}]}]);
        let capi_system = json!({"matchLabels": {"kubernetes.io/metadata.name": "capi-system"}});
        let of = |key: &str, selector: &Value| hooks(&json!([{key: selector}]));
        let pods = |labels: &Value| {
            hooks(&json!([{"namespaceSelector": capi_system, "podSelector": {"matchLabels": labels}}]))
        };
        let rows = [
            ("the default", of("namespaceSelector", &capi_system), Access::Admitted),
            ("all namespaces", of("namespaceSelector", &json!({})), Access::Everyone),
            ("no peers", json!([{"ports": [{"port": 9443}]}]), Access::Everyone),
            ("a range of ports", json!([{"ports": [{"port": 9000, "endPort": 9999}]}]), Access::Everyone),
            ("another port", json!([{"ports": [{"port": "metrics"}]}]), Access::Refused),
            ("no rule", json!([]), Access::Refused),
            ("its Pods", pods(&json!({"control-plane": "controller-manager"})), Access::Admitted),
            ("other Pods", pods(&json!({"app": "other"})), Access::Refused),
            ("the manager's namespace", of("podSelector", &json!({})), Access::Refused),
            ("an address", of("ipBlock", &json!({"cidr": "10.0.0.0/8"})), Access::Unknown),
        ];
        for (name, ingress, expected) in rows {
            let found = access(&policy(&ingress), "chandler-system", &caller("capi-system"));
            assert_eq!(found, expected, "{name}");
        }
        let default = policy(&of("namespaceSelector", &capi_system));
        assert_eq!(access(&default, "chandler-system", &caller("capi")), Access::Refused);
        let own = policy(&of("podSelector", &json!({})));
        assert_eq!(access(&own, "chandler-system", &caller("chandler-system")), Access::Admitted);
    }

    #[test]
    fn the_namespace_of_cluster_api_is_named() {
        let rows = [
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "capi"}}), Severity::Ok),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "capi-system"}}), Severity::Warning),
            (json!({}), Severity::Hint),
        ];
        for (selector, severity) in rows {
            let ingress = json!([{"from": [{"namespaceSelector": selector}], "ports": [{"port": "hooks"}]}]);
            let found = evaluate(&policy(&ingress), "chandler-system", &caller("capi")).unwrap();
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.message.contains("namespace capi"), "{found:?}");
            let peer = "[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: capi}}}]";
            let names_peer = found.next_step.is_some_and(|step| step.contains(peer));
            assert_eq!(names_peer, severity != Severity::Ok);
        }
    }
}
