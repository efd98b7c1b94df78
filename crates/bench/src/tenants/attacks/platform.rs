//! Charts that the filter of a platform catalog excludes.

use anyhow::Result;
use chandler_sandbox::apply::apply;
use serde_json::json;

use crate::{
    chart,
    environment::{CA_KEY, CA_SECRET, Environment},
    tenants::{
        attack::{Attack, ROUND, Site},
        objects,
    },
};

const CLUSTER: &str = "platform";
/// The namespace of the platform, and its catalog.
const PLATFORM: &str = "chandler-system";
const CATALOG: &str = "charts";

/// Creates a catalog for all tenants, with a filter that includes no chart of its repository.
pub async fn offer(environment: &Environment) -> Result<()> {
    let repository = environment.repository();
    let filter = json!({"filter": {"include": ["public-*"]}});
    for object in [
        objects::secret(PLATFORM, CA_SECRET, CA_KEY, repository.ca_pem()),
        objects::catalog(PLATFORM, CATALOG, repository.url(), &filter),
    ] {
        apply(environment.client(), &object).await?;
    }
    Ok(())
}

/// Asks for a chart that the filter excludes: directly, and by an Extension whose index has to be read.
pub fn attack(site: &Site<'_>) -> Attack {
    let source = json!({"catalog": {"name": CATALOG, "scope": "Platform"}, "chart": chart::NAME});
    let version = json!({"version": format!("1.0.{ROUND}"), "source": source});
    let direct = json!({"source": source, "parameters": {"greeting": format!("round-{ROUND}")}});
    let objects = vec![
        objects::object("Extension", site.tenant.namespace, "excluded", &json!({"versions": [version]})),
        site.instance("excluded", CLUSTER, &json!({"extension": {"name": "excluded"}})),
        site.instance("excluded-source", CLUSTER, &direct),
    ];
    Attack { clusters: vec![site.own_cluster(CLUSTER)], objects, ..Attack::default() }
}
