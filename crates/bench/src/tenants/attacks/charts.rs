//! Charts whose templates or schema use all CPU time or all memory.

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    hostile::chart::{BALLOON, SCHEMA_BOMB, write_balloon, write_schema_bomb},
    repository::ChartRepository,
};
use serde_json::{Value, json};

use crate::tenants::{
    attack::{Attack, ROUND, Site},
    objects::CLUSTER_LABEL,
};

/// The number of operations on one cluster is limited, so there are several, with the same API server.
const CLUSTERS: usize = 3;

pub async fn attack(site: &Site<'_>) -> Result<Attack> {
    let repository = publish(site, "charts").await?;
    let objects = (0..CLUSTERS).flat_map(|number| on_cluster(site, repository.url(), number)).collect();
    let clusters = (0..CLUSTERS).map(|number| site.own_cluster(cluster(number))).collect();
    Ok(Attack { clusters, objects, running: vec![Box::new(repository)], ..Attack::default() })
}

/// Starts a repository with the charts, in a folder of this name.
pub async fn publish(site: &Site<'_>, name: &str) -> Result<ChartRepository> {
    let folder = site.dir.join(name);
    let repository =
        ChartRepository::start(site.tenant.environment.authority(), &folder.join("served")).await?;
    let balloon = write_balloon(&folder.join(BALLOON)).context("writing a chart")?;
    let schema_bomb = write_schema_bomb(&folder.join(SCHEMA_BOMB)).context("writing a chart")?;
    repository.publish(&balloon)?;
    repository.publish(&schema_bomb)?;
    Ok(repository)
}

/// Returns the fields of a placement of the chart [`BALLOON`] with an attack.
pub fn balloon(repository: &str, attack: &str) -> Value {
    json!({
        "repoURL": repository, "chartName": BALLOON, "version": "1.0.0",
        "valuesTemplate": format!("attack: {attack}\nround: {ROUND}\n"),
    })
}

fn cluster(number: usize) -> String {
    format!("charts-{number}")
}

/// Returns the placements for one of the clusters: a chart that counts, one that doubles a text, and one with a schema.
fn on_cluster(site: &Site<'_>, repository: &str, number: usize) -> Vec<Value> {
    let cluster = cluster(number);
    let schema = json!({
        "repoURL": repository, "chartName": SCHEMA_BOMB, "version": "1.0.0",
        "valuesTemplate": format!("a: {ROUND}\n"),
    });
    [("cpu", balloon(repository, "cpu")), ("memory", balloon(repository, "memory")), ("schema", schema)]
        .iter()
        .map(|(name, fields)| {
            site.chart_proxy(&format!("{name}-{number}"), (CLUSTER_LABEL, &cluster), fields)
        })
        .collect()
}
