//! Checks whether logins that other namespaces use are limited to hosts.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use chandler_api::addons::HelmChartProxy;
use chandler_core::login_hosts::HOSTS_ANNOTATION;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::{Finding, api};

const CHECK: &str = "login-hosts";

/// Namespace and name of a Secret.
type SecretName = (String, String);

/// Checks the Secrets of other namespaces that HelmChartProxies use. Returns nothing if there are none.
pub async fn check(client: &Client, namespace: Option<&str>) -> Result<Vec<Finding>> {
    let placements = api::<HelmChartProxy>(client, namespace)
        .list(&ListParams::default())
        .await
        .context("listing HelmChartProxies")?;
    let shared: BTreeSet<SecretName> = placements.iter().filter_map(shared_login).collect();
    let mut unlimited = Vec::new();
    for (namespace, name) in &shared {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = secrets.get_metadata_opt(name).await;
        let secret = secret.with_context(|| format!("reading the metadata of Secret {namespace}/{name}"))?;
        if secret.is_some_and(|secret| !secret.annotations().contains_key(HOSTS_ANNOTATION)) {
            unlimited.push(format!("{namespace}/{name}"));
        }
    }
    Ok(if shared.is_empty() { Vec::new() } else { vec![evaluate(shared.len(), &unlimited)] })
}

/// Returns the Secret with the login of a placement, if it is in another namespace.
fn shared_login(placement: &HelmChartProxy) -> Option<SecretName> {
    let secret = &placement.spec.credentials.as_ref()?.secret;
    let namespace = secret.namespace.clone().filter(|namespace| !namespace.is_empty())?;
    (Some(&namespace) != placement.namespace().as_ref())
        .then(|| (namespace, secret.name.clone().unwrap_or_default()))
}

fn evaluate(shared: usize, unlimited: &[String]) -> Finding {
    if unlimited.is_empty() {
        return Finding::ok(
            CHECK,
            format!("all {shared} logins that other namespaces use are limited to hosts"),
        );
    }
    Finding::warning(
        CHECK,
        format!(
            "other namespaces use the login of Secret {}, and can send it to any host, because the URL is theirs",
            unlimited.join(", ")
        ),
        format!(
            "`kubectl annotate secret NAME {HOSTS_ANNOTATION}=HOST[:PORT],…` with the hosts of the repository; \
             --require-login-hosts of the manager refuses Secrets without it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Severity;

    fn placement(secret: &serde_json::Value) -> HelmChartProxy {
        serde_json::from_value(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "web", "namespace": "team"},
            "spec": {
                "clusterSelector": {}, "chartName": "web", "repoURL": "https://charts.example",
                "credentials": {"secret": secret, "key": ""},
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_logins_of_other_namespaces_are_checked() {
        let shared = |secret| shared_login(&placement(&secret));
        assert_eq!(shared(json!({"name": "login"})), None);
        assert_eq!(shared(json!({"name": "login", "namespace": "team"})), None);
        let other = ("shared".to_owned(), "login".to_owned());
        assert_eq!(shared(json!({"name": "login", "namespace": "shared"})), Some(other));
        assert_eq!(evaluate(2, &[]).severity, Severity::Ok);
        let finding = evaluate(2, &["shared/login".to_owned()]);
        assert!(finding.severity == Severity::Warning && finding.message.contains("shared/login"));
    }
}
