//! Checks for user names and passwords in URLs. New objects cannot have them; older ones keep working, but all users who may
//! read the object can read the password.

use std::pin::pin;

use anyhow::{Context as _, Result};
use chandler_api::{
    addons::HelmChartProxy,
    extensions::{Extension, ExtensionCatalog, ExtensionInstance},
};
use chandler_core::url_login::has_login;
use chandler_view::paging::pages;
use futures::TryStreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;

use super::{Finding, api};

const CHECK: &str = "logins";

/// Checks the objects of a namespace. `None` means all namespaces.
pub async fn check(client: &Client, namespace: Option<&str>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    findings.extend(check_kind(client, namespace, in_chart_proxy).await?);
    findings.extend(check_kind(client, namespace, in_catalog).await?);
    findings.extend(check_kind(client, namespace, in_extension).await?);
    findings.extend(check_kind(client, namespace, in_instance).await?);
    Ok(findings)
}

fn in_chart_proxy(object: &HelmChartProxy) -> Option<&'static str> {
    has_login(&object.spec.repo_url).then_some("spec.repoURL")
}

fn in_catalog(object: &ExtensionCatalog) -> Option<&'static str> {
    has_login(&object.spec.url).then_some("spec.url")
}

fn in_extension(object: &Extension) -> Option<&'static str> {
    let versions = object.spec.versions.iter();
    let mut repositories = versions.filter_map(|version| version.source.repository.as_deref());
    let followed = object.spec.follow_kubernetes.as_ref().and_then(|follow| follow.repository.as_deref());
    if repositories.any(has_login) {
        return Some("spec.versions[].source.repository");
    }
    followed.is_some_and(has_login).then_some("spec.followKubernetes.repository")
}

fn in_instance(object: &ExtensionInstance) -> Option<&'static str> {
    let repository = object.spec.source.as_ref().and_then(|source| source.repository.as_deref());
    repository.is_some_and(has_login).then_some("spec.source.repository")
}

async fn check_kind<K>(
    client: &Client,
    namespace: Option<&str>,
    field: fn(&K) -> Option<&'static str>,
) -> Result<Vec<Finding>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let mut pages = pin!(pages(api::<K>(client, namespace), ListParams::default()));
    let mut findings = Vec::new();
    loop {
        match pages.try_next().await {
            Ok(Some(page)) => {
                findings.extend(page.iter().filter_map(|object| finding(object, field(object)?)));
            }
            Ok(None) => return Ok(findings),
            // The check of kinds reports it.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(findings),
            Err(error) => return Err(error).with_context(|| format!("listing {}", K::plural(&()))),
        }
    }
}

fn finding<K: Resource<DynamicType = ()>>(object: &K, field: &str) -> Option<Finding> {
    let namespace = object.namespace()?;
    Some(Finding::warning(
        CHECK,
        format!(
            "{} {namespace}/{}: {field} contains a user name or password, which all users who may read the object can \
             read",
            K::kind(&()),
            object.name_any()
        ),
        "change the password, write it to a Secret, and refer to the Secret in the credentials of the object or of its catalog",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOGIN: &str = "https://user:canary@charts.example";

    #[test]
    fn logins_are_found_and_not_shown() {
        let chart = |url: &str| -> HelmChartProxy {
            serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "fleet"},
                "spec": {"clusterSelector": {}, "chartName": "web", "repoURL": url},
            }))
            .unwrap()
        };
        assert_eq!(in_chart_proxy(&chart("https://charts.example")), None);
        let object = chart(LOGIN);
        let found = finding(&object, in_chart_proxy(&object).unwrap()).unwrap();
        assert!(found.message.starts_with("HelmChartProxy fleet/web: spec.repoURL contains"), "{found:?}");
        assert!(!format!("{found:?}").contains("canary"));
    }

    #[test]
    fn every_field_with_a_repository_is_checked() {
        let package = |url: &str| json!({"repository": url, "chart": "web"});
        let extension = |spec: serde_json::Value| -> Extension {
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
        };
        let versions =
            |url: &str| extension(json!({"versions": [{"version": "1.0.0", "source": package(url)}]}));
        assert_eq!(in_extension(&versions("https://charts.example")), None);
        assert_eq!(in_extension(&versions(LOGIN)), Some("spec.versions[].source.repository"));
        let followed = extension(json!({"followKubernetes": package(LOGIN)}));
        assert_eq!(in_extension(&followed), Some("spec.followKubernetes.repository"));
        let instance: ExtensionInstance = serde_json::from_value(json!({
            "metadata": {"name": "web"}, "spec": {"source": package(LOGIN), "clusters": {"name": "blue"}},
        }))
        .unwrap();
        assert_eq!(in_instance(&instance), Some("spec.source.repository"));
        let catalog: ExtensionCatalog =
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"url": LOGIN}})).unwrap();
        assert_eq!(in_catalog(&catalog), Some("spec.url"));
    }
}
