//! Which agents are connected. Each replica of the hub writes its connections to the status of the ClusterTunnel, and
//! renews a Lease. A replica that dies leaves its entries, which the manager then removes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use chandler_api::tunnel::{ClusterTunnel, ClusterTunnelStatus, TunnelAgent};
use jiff::Timestamp;

/// A replica whose Lease was not renewed for so long has died. Replicas renew theirs every few seconds.
const HUB_LIFE: Duration = Duration::from_mins(1);
/// A replica whose Lease was not read for so long has no entries any more.
const FORGET: Duration = Duration::from_mins(10);

/// The Lease of a replica of the hub, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubLease {
    /// It could not be read.
    Unknown,
    Missing,
    /// The time is that of the replica's clock.
    Renewed(Timestamp),
}

/// Whether a replica of the hub is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubLiveness {
    /// It is alive, or there is no reason to think otherwise.
    Alive,
    /// When it was alive last by its own clock, if that is known.
    Dead(Option<Timestamp>),
}

/// Decides whether replicas of the hub are alive, by how long their Leases are unchanged. Only the clock of this process counts,
/// as in the leader election of client-go: the clocks of two machines may differ.
#[derive(Debug, Default)]
pub struct HubObserver {
    seen: HashMap<String, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    lease: HubLease,
    /// When this content was read for the first time.
    since: Instant,
    /// When it was read for the last time.
    read: Instant,
}

impl HubObserver {
    /// Takes note of the Lease of a replica that was read now.
    pub fn observe(&mut self, hub: &str, lease: HubLease, now: Instant) -> HubLiveness {
        self.seen.retain(|_, seen| now.saturating_duration_since(seen.read) < FORGET);
        if lease == HubLease::Unknown {
            // The replica may have been unable to renew it for the same reason, and gets time to do so.
            self.seen.remove(hub);
            return HubLiveness::Alive;
        }
        let seen = self.seen.entry(hub.to_owned()).or_insert(Seen { lease, since: now, read: now });
        if seen.lease != lease {
            (seen.lease, seen.since) = (lease, now);
        }
        seen.read = now;
        if now.saturating_duration_since(seen.since) <= HUB_LIFE {
            return HubLiveness::Alive;
        }
        HubLiveness::Dead(match lease {
            HubLease::Renewed(at) => Some(at),
            HubLease::Unknown | HubLease::Missing => None,
        })
    }
}

/// Returns the replicas that have entries in the status of a ClusterTunnel.
pub fn hubs_in(status: &ClusterTunnelStatus) -> BTreeSet<&String> {
    let agents = status.agents.iter().map(|agent| &agent.hub);
    agents.chain(status.joins.iter().map(|join| &join.hub)).collect()
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
    fn a_replica_is_dead_only_if_its_lease_is_unchanged_for_a_minute() {
        let start = Instant::now();
        let (alive, missing) = (HubLiveness::Alive, HubLease::Missing);
        // Years ago, or ahead: the clock of the replica does not matter.
        let (old, ahead) = (HubLease::Renewed(at(0)), HubLease::Renewed(at(4_000_000_000)));
        // The reads of a Lease, in seconds after the start, and the liveness after the last one.
        let rows: [(&[(u64, HubLease)], HubLiveness); 10] = [
            (&[(0, old)], alive),
            (&[(0, old), (60, old)], alive),
            (&[(0, old), (61, old)], HubLiveness::Dead(Some(at(0)))),
            (&[(0, ahead), (61, ahead)], HubLiveness::Dead(Some(at(4_000_000_000)))),
            (&[(0, old), (50, HubLease::Renewed(at(1))), (70, HubLease::Renewed(at(1)))], alive),
            (&[(0, missing), (60, missing)], alive),
            (&[(0, missing), (30, missing), (61, missing)], HubLiveness::Dead(None)),
            (&[(0, old), (50, missing), (70, missing)], alive),
            // The API server was unavailable for the replica too.
            (&[(0, old), (50, HubLease::Unknown), (70, old)], alive),
            (&[(0, old), (70, HubLease::Unknown)], alive),
        ];
        for (number, (reads, expected)) in rows.into_iter().enumerate() {
            let mut observer = HubObserver::default();
            let mut last = None;
            for (second, lease) in reads {
                last = Some(observer.observe("hub", *lease, start + Duration::from_secs(*second)));
                observer.observe("other", old, start + Duration::from_secs(*second));
            }
            assert_eq!(last, Some(expected), "row {number}");
        }
    }

    #[test]
    fn replicas_that_are_not_read_any_more_are_forgotten() {
        let (mut observer, start) = (HubObserver::default(), Instant::now());
        observer.observe("gone", HubLease::Missing, start);
        observer.observe("hub", HubLease::Missing, start + FORGET);
        assert_eq!(observer.seen.keys().collect::<Vec<_>>(), ["hub"]);
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
        let join = TunnelJoin { hub: "joined".to_owned(), epoch: 1, at: Time(at(0)) };
        let status = ClusterTunnelStatus {
            agents: vec![agent("alive"), agent("gone"), agent("gone")],
            joins: vec![join],
            ..ClusterTunnelStatus::default()
        };
        let hubs: Vec<_> = hubs_in(&status).into_iter().map(String::as_str).collect();
        assert_eq!(hubs, ["alive", "gone", "joined"]);
        let dead = ["gone".to_owned(), "joined".to_owned()];
        let left = without_hubs(&status, &dead.iter().collect());
        assert_eq!(left.agents, [agent("alive")]);
        assert!(left.joins.is_empty());
    }
}
