//! API servers of workload clusters that send responses without an end, redirect to other servers, or are silent.

use std::net::Ipv4Addr;

use anyhow::Result;
use chandler_sandbox::hostile::api_server::{Attack as Behavior, HostileServer, InternalServer};
use serde_json::json;

use crate::{
    chart,
    environment::VERSIONS,
    tenants::{
        attack::{Attack, AttackCluster, Site},
        objects::GROUP_LABEL,
    },
};

const GROUP: &str = "hostile-servers";
/// The number of servers of each kind.
const SERVERS: usize = 2;

pub async fn attack(site: &Site<'_>) -> Result<Attack> {
    // The manager may connect to this address, but not because an API server redirects it there.
    let internal = InternalServer::start(Ipv4Addr::LOCALHOST).await?;
    let behaviors = [
        ("lists", Behavior::EndlessLists),
        ("errors", Behavior::EndlessErrors),
        ("events", Behavior::EndlessEvents),
        ("discovery", Behavior::EndlessDiscovery),
        ("redirect-manager", Behavior::RedirectManager(internal.address())),
        ("redirect-driver", Behavior::RedirectDriver(internal.address())),
        ("silence", Behavior::Silence),
    ];
    let mut attack = Attack { internal: vec![internal], ..Attack::default() };
    for number in 0..SERVERS {
        for (name, behavior) in &behaviors {
            let name = format!("{name}-{number}");
            let server = HostileServer::start(&site.dir.join(&name), behavior.clone()).await?;
            let (group, kubeconfig) = (GROUP.to_owned(), server.kubeconfig());
            attack.clusters.push(AttackCluster { name, group, kubeconfig });
            attack.running.push(Box::new(server));
        }
    }
    let fields = json!({
        "repoURL": site.tenant.environment.repository().url(), "chartName": chart::NAME, "version": VERSIONS[0],
    });
    attack.objects.push(site.chart_proxy(GROUP, (GROUP_LABEL, GROUP), &fields));
    Ok(attack)
}
