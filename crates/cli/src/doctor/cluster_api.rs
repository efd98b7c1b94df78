//! Whether Cluster API is there, and new enough.

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
/// The newest that Chandler has been tried with.
const NEWEST: (u64, u64) = (1, 12);

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = format!("clusters.{CLUSTER_GROUP}");
    let there = definitions.get_opt(&name).await.with_context(|| format!("reading the definition {name}"))?;
    Ok(vec![judge(there.as_ref(), version(client).await.as_deref())])
}

/// Nothing has to know the version: what decides is which versions of the Cluster kind are served.
async fn version(client: &Client) -> Option<String> {
    match in_inventory(client).await {
        Some(version) => Some(version),
        None => of_deployment(client).await,
    }
}

/// As clusterctl noted it.
async fn in_inventory(client: &Client) -> Option<String> {
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let providers: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let providers = providers.list(&ListParams::default()).await.ok()?;
    let core = providers.items.into_iter().find(|provider| provider.data["providerName"] == "cluster-api")?;
    core.data.get("version").and_then(Value::as_str).map(str::to_owned)
}

/// As the image of its Deployment is tagged.
async fn of_deployment(client: &Client) -> Option<String> {
    let named = ListParams::default().fields("metadata.name=capi-controller-manager");
    let deployments = Api::<Deployment>::all(client.clone()).list(&named).await.ok()?;
    let pod = deployments.items.into_iter().next()?.spec?.template.spec?;
    let image = pod.containers.into_iter().next()?.image?;
    Some(image.rsplit_once(':')?.1.to_owned())
}

fn judge(there: Option<&CustomResourceDefinition>, version: Option<&str>) -> Finding {
    let Some(there) = there else {
        return Finding::problem(CHECK, "Cluster API is not installed", "`clusterctl init`");
    };
    let minor = version.and_then(minor);
    let version = version.map_or_else(
        || {
            "Cluster API, version unknown (no clusterctl inventory, no Deployment capi-controller-manager)"
                .to_owned()
        },
        |version| format!("Cluster API {version}"),
    );
    let upgrade = format!("`clusterctl upgrade apply` to {}.{} or newer", OLDEST.0, OLDEST.1);
    if !there.spec.versions.iter().any(|served| served.name == CLUSTER_VERSION && served.served) {
        let message = format!("{version} does not serve {CLUSTER_VERSION} of Clusters");
        let too_new = minor.is_some_and(|minor| minor > NEWEST);
        let next = if too_new { "use a newer Chandler".to_owned() } else { upgrade };
        return Finding::problem(CHECK, message, next);
    }
    match minor {
        Some(minor) if minor < OLDEST => {
            Finding::problem(CHECK, format!("{version} is older than Chandler supports"), upgrade)
        }
        Some(minor) if minor > NEWEST => Finding::warning(
            CHECK,
            format!("{version} is newer than this chandler has been tried with ({}.{})", NEWEST.0, NEWEST.1),
            "see whether there is a newer Chandler",
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
    use crate::doctor::finding::Verdict;

    #[test]
    fn absent_too_old_and_right() {
        assert_eq!(judge(None, None).verdict, Verdict::Problem);
        let mut definition = chandler_api::crds().remove(0);
        assert_eq!(judge(Some(&definition), Some("v1.9.0")).verdict, Verdict::Problem);
        definition.spec.versions[0].name = CLUSTER_VERSION.to_owned();
        let found = judge(Some(&definition), Some("v1.12.3"));
        assert_eq!((found.verdict, &*found.message), (Verdict::Ok, "Cluster API v1.12.3, serves v1beta2"));
        let verdict = |version: &str| judge(Some(&definition), Some(version)).verdict;
        assert_eq!(verdict("v1.10.9"), Verdict::Problem);
        assert_eq!(verdict("v1.11.0"), Verdict::Ok);
        assert_eq!(verdict("v1.99.0"), Verdict::Warning);
        assert_eq!(verdict("main"), Verdict::Ok);
    }
}
