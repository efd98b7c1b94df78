//! Which agents are connected. Each replica of the hub writes its connections to the status of the ClusterTunnel, and
//! renews a Lease. A replica that dies leaves its entries, which the manager then removes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chandler_api::tunnel::{ClusterTunnel, ClusterTunnelStatus, TunnelAgent};
use jiff::Timestamp;

/// A replica whose Lease was not renewed for so long has died. Replicas renew theirs every few seconds.
const HUB_LIFE: Duration = Duration::from_mins(1);

/// The Lease of a replica of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubLease {
    /// It could not be read.
    Unknown,
    Missing,
    Renewed(Timestamp),
}

/// Whether a replica of the hub is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubLiveness {
    /// It is alive, or there is no reason to think otherwise.
    Alive,
    /// When it was alive last, if that is known.
    Dead(Option<Timestamp>),
}

/// Decides whether a replica of the hub is alive. `entered` is when it wrote the entry in question: a replica writes
/// its first entry shortly before or after it creates its Lease.
pub fn hub_liveness(lease: HubLease, entered: Timestamp, now: Timestamp) -> HubLiveness {
    let is_old = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default() > HUB_LIFE;
    match lease {
        HubLease::Renewed(at) if is_old(at) => HubLiveness::Dead(Some(at)),
        HubLease::Missing if is_old(entered) => HubLiveness::Dead(None),
        HubLease::Unknown | HubLease::Missing | HubLease::Renewed(_) => HubLiveness::Alive,
    }
}

/// Returns the replicas in the status of a ClusterTunnel that have died, with the time at which each was alive last.
pub fn dead_hubs(
    status: &ClusterTunnelStatus,
    leases: &BTreeMap<String, HubLease>,
    now: Timestamp,
) -> BTreeMap<String, Option<Timestamp>> {
    let agents = status.agents.iter().map(|agent| (&agent.hub, agent.since.0));
    let joins = status.joins.iter().map(|join| (&join.hub, join.at.0));
    let mut newest: BTreeMap<&String, Timestamp> = BTreeMap::new();
    for (hub, at) in agents.chain(joins) {
        let entered = newest.entry(hub).or_insert(at);
        *entered = at.max(*entered);
    }
    let dead = newest.into_iter().filter_map(|(hub, entered)| {
        let lease = leases.get(hub).copied().unwrap_or(HubLease::Unknown);
        match hub_liveness(lease, entered, now) {
            HubLiveness::Dead(at) => Some((hub.clone(), at)),
            HubLiveness::Alive => None,
        }
    });
    dead.collect()
}

/// Returns the status without the entries of these replicas.
pub fn without_hubs(status: &ClusterTunnelStatus, dead: &BTreeSet<&String>) -> ClusterTunnelStatus {
    let mut status = status.clone();
    status.agents.retain(|agent| !dead.contains(&agent.hub));
    status.joins.retain(|join| !dead.contains(&join.hub));
    status
}

/// Returns the connections of agents with a certificate of the current epoch, without those of dead replicas.
pub fn connected_agents<'a>(
    tunnel: &'a ClusterTunnel,
    dead: &'a BTreeMap<String, Option<Timestamp>>,
) -> impl Iterator<Item = &'a TunnelAgent> {
    let agents = tunnel.status.iter().flat_map(|status| &status.agents);
    agents.filter(|agent| agent.epoch == tunnel.spec.epoch && !dead.contains_key(&agent.hub))
}

#[cfg(test)]
mod tests {
    use chandler_api::tunnel::TunnelJoin;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_replica_is_dead_only_if_its_lease_says_so() {
        let now = at(1000);
        // Lease, when the entry was written, liveness.
        let rows = [
            (HubLease::Renewed(at(999)), 0, HubLiveness::Alive),
            (HubLease::Renewed(at(940)), 0, HubLiveness::Alive),
            (HubLease::Renewed(at(939)), 999, HubLiveness::Dead(Some(at(939)))),
            // The clock of the hub is ahead.
            (HubLease::Renewed(at(2000)), 0, HubLiveness::Alive),
            (HubLease::Missing, 999, HubLiveness::Alive),
            (HubLease::Missing, 939, HubLiveness::Dead(None)),
            (HubLease::Unknown, 0, HubLiveness::Alive),
        ];
        for (lease, entered, expected) in rows {
            assert_eq!(hub_liveness(lease, at(entered), now), expected, "{lease:?} {entered}");
        }
    }

    #[test]
    fn entries_of_dead_replicas_are_removed() {
        let agent = |hub: &str| TunnelAgent {
            hub: hub.to_owned(),
            connection: "1".to_owned(),
            epoch: 1,
            since: Time(at(0)),
            node: String::new(),
            version: String::new(),
        };
        let join = TunnelJoin { hub: "gone".to_owned(), epoch: 1, at: Time(at(0)) };
        let status = ClusterTunnelStatus {
            agents: vec![agent("alive"), agent("gone"), agent("unread")],
            joins: vec![join],
            ..ClusterTunnelStatus::default()
        };
        let leases =
            [("alive".to_owned(), HubLease::Renewed(at(990))), ("gone".to_owned(), HubLease::Missing)];
        let dead = dead_hubs(&status, &leases.into(), at(1000));
        assert_eq!(dead, [("gone".to_owned(), None)].into());
        let left = without_hubs(&status, &dead.keys().collect());
        assert_eq!(left.agents, [agent("alive"), agent("unread")]);
        assert!(left.joins.is_empty());
    }
}
