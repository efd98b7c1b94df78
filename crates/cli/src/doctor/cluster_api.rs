//! Checks whether a supported version of Cluster API is installed.

use anyhow::{Context as _, Result};
use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::Finding;

const CHECK: &str = "cluster-api";
const OLDEST: (u64, u64) = (1, 11);
/// The newest tested version.
const NEWEST: (u64, u64) = (1, 12);

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = format!("clusters.{CLUSTER_GROUP}");
    let crd = crds.get_opt(&name).await.with_context(|| format!("reading the CRD {name}"))?;
    Ok(vec![evaluate(crd.as_ref(), version(client).await.as_deref())])
}

/// Returns the version of Cluster API if it can be determined. It is informative: the check depends on the served
/// versions of the Cluster kind.
async fn version(client: &Client) -> Option<String> {
    match version_from_inventory(client).await {
        Some(version) => Some(version),
        None => version_from_deployment(client).await,
    }
}

/// Returns the version from clusterctl's inventory.
async fn version_from_inventory(client: &Client) -> Option<String> {
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let providers: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let providers = providers.list(&ListParams::default()).await.ok()?;
    let core = providers.items.into_iter().find(|provider| provider.data["providerName"] == "cluster-api")?;
    core.data.get("version").and_then(Value::as_str).map(str::to_owned)
}

/// Returns the Deployments of Cluster API's core controllers. There is one, in any namespace, unless Cluster API is installed in
/// another way than its components.
pub async fn deployments(client: &Client) -> Result<Vec<Deployment>> {
    let params = ListParams::default().fields("metadata.name=capi-controller-manager");
    let listed = Api::<Deployment>::all(client.clone()).list(&params).await;
    Ok(listed.context("listing the Deployments of Cluster API")?.items)
}

/// Returns the image tag of the Deployment.
async fn version_from_deployment(client: &Client) -> Option<String> {
    let pod = deployments(client).await.ok()?.into_iter().next()?.spec?.template.spec?;
    let image = pod.containers.into_iter().next()?.image?;
    Some(image.rsplit_once(':')?.1.to_owned())
}

fn evaluate(crd: Option<&CustomResourceDefinition>, version: Option<&str>) -> Finding {
    let Some(crd) = crd else {
        return Finding::problem(CHECK, "Cluster API is not installed", "install it with `clusterctl init`");
    };
    let minor = version.and_then(minor);
    let version = version.map_or_else(
        || {
            "Cluster API, version unknown (no clusterctl inventory, no Deployment capi-controller-manager)"
                .to_owned()
        },
        |version| format!("Cluster API {version}"),
    );
    let upgrade =
        format!("upgrade Cluster API to {}.{} or newer with `clusterctl upgrade apply`", OLDEST.0, OLDEST.1);
    if !crd.spec.versions.iter().any(|served| served.name == CLUSTER_VERSION && served.served) {
        let message = format!("{version} does not serve {CLUSTER_VERSION} of Clusters");
        let too_new = minor.is_some_and(|minor| minor > NEWEST);
        let next_step = if too_new { "upgrade Chandler".to_owned() } else { upgrade };
        return Finding::problem(CHECK, message, next_step);
    }
    match minor {
        Some(minor) if minor < OLDEST => {
            Finding::problem(CHECK, format!("{version} is too old for this version of Chandler"), upgrade)
        }
        Some(minor) if minor > NEWEST => Finding::warning(
            CHECK,
            format!(
                "{version} is newer than the newest version tested with this version of Chandler ({}.{})",
                NEWEST.0, NEWEST.1
            ),
            "check whether a newer version of Chandler is available",
        ),
        _ => Finding::ok(CHECK, format!("{version}, serves {CLUSTER_VERSION}")),
    }
}

fn minor(version: &str) -> Option<(u64, u64)> {
    let version = semver::Version::parse(version.trim_start_matches('v')).ok()?;
    Some((version.major, version.minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn severity_depends_on_the_version() {
        assert_eq!(evaluate(None, None).severity, Severity::Problem);
        let mut crd = chandler_api::crds().remove(0);
        assert_eq!(evaluate(Some(&crd), Some("v1.9.0")).severity, Severity::Problem);
        crd.spec.versions[0].name = CLUSTER_VERSION.to_owned();
        let found = evaluate(Some(&crd), Some("v1.12.3"));
        assert_eq!((found.severity, &*found.message), (Severity::Ok, "Cluster API v1.12.3, serves v1beta2"));
        let severity = |version: &str| evaluate(Some(&crd), Some(version)).severity;
        assert_eq!(severity("v1.10.9"), Severity::Problem);
        assert_eq!(severity("v1.11.0"), Severity::Ok);
        assert_eq!(severity("v1.99.0"), Severity::Warning);
        assert_eq!(severity("main"), Severity::Ok);
    }
}
