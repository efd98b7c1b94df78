//! The `HelmChartProxy` objects of the benchmark.

use anyhow::Result;
use chandler_sandbox::apply::apply;
use futures::future::try_join_all;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use super::changes::VALUES_TEMPLATE;
use crate::{
    chart,
    environment::{CA_SECRET, Environment, GROUP, NAMESPACE, TARGET_NAMESPACE, VERSIONS, proxy_resource},
};

/// Publishes the chart, and applies so many placements of it that select all clusters.
pub async fn apply_all(environment: &Environment, placements: u32) -> Result<()> {
    let chart = chart::write_large(&environment.dir().join("large-chart"))?;
    environment.repository().publish_version(&chart, VERSIONS[0])?;
    let objects: Vec<_> =
        (1..=placements).map(|index| placement(index, environment.repository().url())).collect();
    try_join_all(objects.iter().map(|object| apply(environment.client(), object))).await?;
    Ok(())
}

fn placement(index: u32, repository: &str) -> Value {
    let name = format!("addon-{index:02}");
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
