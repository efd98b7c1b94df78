//! Checks whether the admission policies of `deploy/rbac.yaml` restrict what the manager's ServiceAccount writes.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};

use super::{Finding, ManagerIdentity};

const CHECK: &str = "admission";

/// The policies, without the namespace at the beginning of their names, and what an account can do without them.
const POLICIES: [(&str, &str); 2] = [
    (
        "-manager-secrets",
        "can create Secrets with tokens of other ServiceAccounts, and so get the permissions of all of them",
    ),
    ("-manager-hooks", "can register hooks of any name with Cluster API"),
];
const NEXT_STEP: &str = "`kubectl apply --server-side -f deploy/rbac.yaml`, or upgrade the chart";

/// Checks the policies for the account of the manager.
pub async fn check(client: &Client, manager: &ManagerIdentity) -> Result<Vec<Finding>> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let mut findings = Vec::new();
    for (suffix, without) in POLICIES {
        let name = format!("{}{suffix}", manager.manager_namespace);
        let policy = policies.get_opt(&name).await.context("reading a ValidatingAdmissionPolicy")?;
        let binding = bindings.get_opt(&name).await.context("reading a ValidatingAdmissionPolicyBinding")?;
        findings.push(evaluate(manager, &name, without, policy.as_ref(), binding.as_ref()));
    }
    Ok(findings)
}

fn evaluate(
    manager: &ManagerIdentity,
    name: &str,
    without: &str,
    policy: Option<&ValidatingAdmissionPolicy>,
    binding: Option<&ValidatingAdmissionPolicyBinding>,
) -> Finding {
    let ManagerIdentity { manager_namespace, service_account } = manager;
    let account = format!("ServiceAccount {manager_namespace}/{service_account}");
    let problem = match (policy, binding) {
        (None, _) => Some("does not exist"),
        (_, None) => Some("has no binding"),
        (_, Some(binding)) if !denies(name, binding) => Some("has a binding that denies nothing"),
        (Some(policy), _) if !concerns(policy, manager) => Some("is for another ServiceAccount"),
        _ => None,
    };
    match problem {
        None => Finding::ok(CHECK, format!("ValidatingAdmissionPolicy {name} restricts {account}")),
        Some(problem) => Finding::warning(
            CHECK,
            format!("{account} {without}: ValidatingAdmissionPolicy {name} {problem}"),
            NEXT_STEP,
        ),
    }
}

fn denies(policy: &str, binding: &ValidatingAdmissionPolicyBinding) -> bool {
    let Some(spec) = &binding.spec else { return false };
    let mut actions = spec.validation_actions.iter().flatten();
    spec.policy_name.as_deref() == Some(policy) && actions.any(|action| action == "Deny")
}

fn concerns(policy: &ValidatingAdmissionPolicy, manager: &ManagerIdentity) -> bool {
    let ManagerIdentity { manager_namespace, service_account } = manager;
    let user = format!("'system:serviceaccount:{manager_namespace}:{service_account}'");
    let mut conditions = policy.spec.iter().flat_map(|spec| spec.match_conditions.iter().flatten());
    conditions.any(|condition| condition.expression.contains(&user))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    const RBAC_MANIFEST: &str = include_str!("../../../../deploy/rbac.yaml");

    fn shipped<K: serde::de::DeserializeOwned>(kind: &str, name: &str) -> K {
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(RBAC_MANIFEST).unwrap();
        let object =
            documents.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        serde_json::from_value(object.unwrap()).unwrap()
    }

    #[test]
    fn the_shipped_policies_restrict_the_shipped_account() {
        let manager = |account: &str| ManagerIdentity {
            manager_namespace: "chandler-system".to_owned(),
            service_account: account.to_owned(),
        };
        for (suffix, without) in POLICIES {
            let name = format!("chandler-system{suffix}");
            let policy: ValidatingAdmissionPolicy = shipped("ValidatingAdmissionPolicy", &name);
            let binding: ValidatingAdmissionPolicyBinding =
                shipped("ValidatingAdmissionPolicyBinding", &name);
            let mut audits = binding.clone();
            audits.spec.as_mut().unwrap().validation_actions = Some(vec!["Audit".to_owned()]);
            let rows = [
                ("chandler-manager", Some(&policy), Some(&binding), Severity::Ok, "restricts"),
                ("chandler-manager", None, Some(&binding), Severity::Warning, "does not exist"),
                ("chandler-manager", Some(&policy), None, Severity::Warning, "no binding"),
                ("chandler-manager", Some(&policy), Some(&audits), Severity::Warning, "denies nothing"),
                ("other", Some(&policy), Some(&binding), Severity::Warning, "another ServiceAccount"),
            ];
            for (account, policy, binding, severity, message) in rows {
                let found = evaluate(&manager(account), &name, without, policy, binding);
                assert_eq!(found.severity, severity, "{}", found.message);
                assert!(found.message.contains(message), "{}", found.message);
            }
            assert!(json!(evaluate(&manager("other"), &name, without, None, None))["nextStep"].is_string());
        }
    }
}
