//! The `HelmChartProxy` objects of the benchmark.

use anyhow::Result;
use chandler_api::{capi::CLUSTER_NAME_LABEL, extensions::POLICY_ANNOTATION, status::DRIFTED};
use chandler_sandbox::apply::apply;
use futures::future::try_join_all;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::changes::VALUES_TEMPLATE;
use crate::{
    chart,
    environment::{CA_SECRET, Environment, GROUP, NAMESPACE, TARGET_NAMESPACE, VERSIONS, proxy_resource},
};

const DRIFT_POLICY: &str = "drift";

/// Publishes the chart, and applies so many placements of it that select all clusters.
pub async fn apply_all(environment: &Environment, placements: u32) -> Result<()> {
    let chart = chart::write_large(&environment.dir().join("large-chart"))?;
    environment.repository().publish_version(&chart, VERSIONS[0])?;
    let objects: Vec<_> =
        (1..=placements).map(|index| placement(index, environment.repository().url())).collect();
    try_join_all(objects.iter().map(|object| apply(environment.client(), object))).await?;
    Ok(())
}

fn name(index: u32) -> String {
    format!("addon-{index:02}")
}

fn placement(index: u32, repository: &str) -> Value {
    let name = name(index);
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "clusterSelector": {"matchLabels": {"fleet": "bench"}},
            "repoURL": repository, "chartName": chart::LARGE_NAME, "version": VERSIONS[0],
            "releaseName": name, "namespace": TARGET_NAMESPACE,
            "valuesTemplate": VALUES_TEMPLATE,
            "tlsConfig": {"caSecret": {"name": CA_SECRET, "namespace": NAMESPACE}},
        },
    })
}

/// Lets the objects of all releases be compared with the chart, or not any more.
pub async fn set_drift(client: &Client, placements: u32, is_on: bool) -> Result<()> {
    let policy = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy",
        "metadata": {"name": DRIFT_POLICY, "namespace": NAMESPACE},
        "spec": {"drift": {"mode": "Report"}},
    });
    apply(client, &policy).await?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &proxy_resource("HelmChartProxy"));
    let annotations = json!({POLICY_ANNOTATION: is_on.then_some(DRIFT_POLICY)});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    for index in 1..=placements {
        api.patch_metadata(&name(index), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Returns the reasons of the conditions `Drifted` of the releases of a cluster.
pub async fn drift_reasons(client: &Client, cluster: &str) -> Result<Vec<String>> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &proxy_resource("HelmReleaseProxy"));
    let params = ListParams::default().labels(&format!("{CLUSTER_NAME_LABEL}={cluster}"));
    let reason = |release: &DynamicObject| {
        let mut conditions = release.data["status"]["conditions"].as_array().into_iter().flatten();
        let drifted = conditions.find(|condition| condition["type"] == DRIFTED);
        drifted.and_then(|condition| condition["reason"].as_str()).unwrap_or("none").to_owned()
    };
    Ok(api.list(&params).await?.items.iter().map(reason).collect())
}

/// Returns on how many clusters each placement is ready, for example `addon-01 3/4`.
pub async fn ready_clusters(client: &Client) -> Result<Vec<String>> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &proxy_resource("HelmChartProxy"));
    let placements = api.list(&ListParams::default()).await?.items;
    let ready = |placement: &DynamicObject| {
        let ready = placement.data["status"]["readyClusters"].as_str().unwrap_or("0");
        format!("{} {ready}", placement.name_any())
    };
    Ok(placements.iter().map(ready).collect())
}

/// Returns whether so many placements are ready on all clusters.
pub fn all_ready(ready: &[String], placements: u32, clusters: u32) -> bool {
    let expected = format!(" {clusters}/{clusters}");
    usize::try_from(placements).is_ok_and(|count| count == ready.len())
        && ready.iter().all(|one| one.ends_with(&expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placement_has_to_be_ready_everywhere() {
        let rows: [(&[&str], bool); 4] = [
            (&["a 12/12", "b 12/12"], true),
            (&["a 12/12"], false),
            (&["a 12/12", "b 2/12"], false),
            (&["a 12/12", "b 112/112"], false),
        ];
        for (ready, expected) in rows {
            let ready: Vec<_> = ready.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(all_ready(&ready, 2, 12), expected, "{ready:?}");
        }
    }
}
