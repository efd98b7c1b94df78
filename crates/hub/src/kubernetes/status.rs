//! Writes what this replica knows into the status of ClusterTunnels, by server-side apply: each replica owns its entries.
//!
//! Level-triggered: a status that differs from what the replica knows is written again, after a failed request, after a
//! restart under the same name, and after a move, which loses the status.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chandler_api::tunnel::{
    ClusterTunnel, HUB_FIELD_MANAGER_PREFIX, MAX_AGENTS_PER_HUB, TunnelAgent, TunnelJoin,
};
use chandler_tunnel::TunnelKey;
use futures::{StreamExt as _, future::ready, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, Resource as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::objects::{Objects, OwnStatus};
use crate::{locks::Mutex, metrics::Metrics, report::AgentRecord};

/// Waits for more changes before it writes: two connections of an agent usually come together.
const COLLECT: Duration = Duration::from_millis(200);
/// Limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between writes, also if another writer removes what this replica writes.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failed request.
const RETRY: Duration = Duration::from_secs(2);
/// Concurrent requests.
const CONCURRENCY: usize = 8;

/// Writes the status. Clones share their state.
#[derive(Clone)]
pub struct StatusWriter(Arc<Shared>);

struct Shared {
    client: Client,
    /// The name of this replica.
    hub: String,
    objects: Arc<Mutex<Objects>>,
    metrics: Metrics,
    state: Mutex<State>,
    wake: Notify,
    /// Held while writing: an older status must not overwrite a newer one.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    desired: HashMap<TunnelKey, OwnStatus>,
    /// The tunnels whose status has to be written.
    pending: HashSet<TunnelKey>,
}

impl State {
    /// Returns whether the status of an object differs from what this replica knows. A join that was granted before a restart
    /// under the same name is kept.
    fn adopt(&mut self, tunnel: TunnelKey, observed: &OwnStatus) -> bool {
        let desired = self.desired.entry(tunnel).or_default();
        if desired.join.is_none() {
            desired.join.clone_from(&observed.join);
        }
        desired != observed
    }

    /// Forgets a tunnel without an object. If the objects are not listed yet, a join is kept.
    fn forget(&mut self, tunnel: TunnelKey, is_listed: bool) {
        let is_over = |status: &OwnStatus| status.agents.is_empty() && (is_listed || status.join.is_none());
        if self.desired.get(&tunnel).is_some_and(is_over) {
            self.desired.remove(&tunnel);
        }
    }

    /// Forgets tunnels whose objects are deleted. One with agents is forgotten when they are disconnected.
    fn forget_deleted(&mut self, is_served: impl Fn(TunnelKey) -> bool) {
        self.desired.retain(|tunnel, status| !status.agents.is_empty() || is_served(*tunnel));
    }
}

impl StatusWriter {
    pub fn new(client: Client, hub: String, objects: Arc<Mutex<Objects>>, metrics: Metrics) -> Self {
        let (state, wake, writing) = (Mutex::default(), Notify::new(), tokio::sync::Mutex::default());
        Self(Arc::new(Shared { client, hub, objects, metrics, state, wake, writing }))
    }

    /// Sets the agents of a tunnel at this replica.
    pub fn set_agents(&self, tunnel: TunnelKey, agents: Vec<AgentRecord>) {
        let agents = own_agents(&self.0.hub, agents);
        self.change(tunnel, |status| status.agents = agents);
    }

    /// Sets the last join that this replica has granted to a tunnel.
    pub fn set_join(&self, tunnel: TunnelKey, epoch: u32, at: Timestamp) {
        let join = TunnelJoin { hub: self.0.hub.clone(), epoch, at: seconds(at) };
        self.change(tunnel, |status| status.join = Some(join));
    }

    fn change(&self, tunnel: TunnelKey, change: impl FnOnce(&mut OwnStatus)) {
        let mut state = self.0.state.lock();
        change(state.desired.entry(tunnel).or_default());
        state.pending.insert(tunnel);
        self.0.wake.notify_one();
    }

    /// Compares the status of an object with what this replica knows, and writes it again if it differs.
    pub fn observed(&self, tunnel: TunnelKey, observed: &OwnStatus) {
        let mut state = self.0.state.lock();
        if state.adopt(tunnel, observed) {
            state.pending.insert(tunnel);
            self.0.wake.notify_one();
        }
    }

    /// Forgets what this replica knows about tunnels whose objects are deleted.
    pub fn forget_deleted(&self, objects: &Objects) {
        self.0.state.lock().forget_deleted(|tunnel| objects.of(tunnel).is_some());
    }

    /// Writes until the future is dropped.
    pub async fn run(self) {
        loop {
            self.0.wake.notified().await;
            tokio::time::sleep(COLLECT).await;
            let pause = if self.write_pending().await { PAUSE } else { RETRY };
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes what is pending. Returns when nothing is pending any more, or when `deadline` has passed.
    pub async fn flush(&self, deadline: Duration) {
        let written = async {
            while !self.write_pending().await || !self.0.state.lock().pending.is_empty() {
                tokio::time::sleep(COLLECT).await;
            }
        };
        if tokio::time::timeout(deadline, written).await.is_err() {
            tracing::warn!("cannot write the status of all ClusterTunnels before the hub stops");
        }
    }

    /// Returns whether all requests succeeded. Those that failed are pending again.
    async fn write_pending(&self) -> bool {
        let _alone = self.0.writing.lock().await;
        let tunnels: Vec<_> = self.0.state.lock().pending.drain().collect();
        let results = stream::iter(tunnels).map(|tunnel| self.write(tunnel)).buffer_unordered(CONCURRENCY);
        results.fold(true, |all, succeeded| ready(all && succeeded)).await
    }

    async fn write(&self, tunnel: TunnelKey) -> bool {
        let Err(error) = self.apply(tunnel).await else { return true };
        tracing::warn!(tunnel = %tunnel.id, error, "cannot write the status of a ClusterTunnel; retrying");
        self.0.metrics.status_failed();
        self.0.state.lock().pending.insert(tunnel);
        self.0.wake.notify_one();
        false
    }

    async fn apply(&self, tunnel: TunnelKey) -> Result<(), String> {
        let (entry, is_listed) = {
            let objects = self.0.objects.lock();
            (objects.of(tunnel).map(|known| known.entry.clone()), objects.is_listed())
        };
        let desired = self.0.state.lock().desired.get(&tunnel).cloned().unwrap_or_default();
        let Some(entry) = entry else {
            // The object is deleted, or not listed yet: then `observed` is called for it later.
            self.0.state.lock().forget(tunnel, is_listed);
            return Ok(());
        };
        let api: Api<ClusterTunnel> = Api::namespaced(self.0.client.clone(), &entry.namespace);
        let manager = format!("{HUB_FIELD_MANAGER_PREFIX}{}", self.0.hub);
        let parameters = PatchParams::apply(&manager).force();
        let patch = Patch::Apply(patch(&entry.name, &desired));
        let request = api.patch_status(&entry.name, &parameters, &patch);
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs())),
        }
    }
}

/// Returns the entries of this replica. The API server refuses a longer list, so those of the newest connections are left out:
/// one is enough to show that an agent is connected.
fn own_agents(hub: &str, mut agents: Vec<AgentRecord>) -> Vec<TunnelAgent> {
    agents.sort_by_key(|agent| agent.since);
    agents.truncate(MAX_AGENTS_PER_HUB);
    let record = |AgentRecord { connection, epoch, since, node, version }: AgentRecord| TunnelAgent {
        hub: hub.to_owned(),
        connection,
        epoch,
        since: seconds(since),
        node,
        version,
    };
    let mut agents: Vec<_> = agents.into_iter().map(record).collect();
    agents.sort_by(|one, other| one.connection.cmp(&other.connection));
    agents
}

/// Times of a status have seconds. A finer one would differ from what the API server returns.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn patch(name: &str, status: &OwnStatus) -> Value {
    json!({
        "apiVersion": ClusterTunnel::api_version(&()), "kind": ClusterTunnel::kind(&()),
        "metadata": {"name": name},
        "status": {"agents": status.agents, "joins": status.join.iter().collect::<Vec<_>>()},
    })
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::{TunnelId, TunnelOwner};

    use super::*;

    #[test]
    fn a_patch_contains_only_what_this_replica_owns() {
        let since = "2026-01-01T10:00:00.123456Z".parse().unwrap();
        let record = |connection: &str| AgentRecord {
            connection: connection.to_owned(),
            epoch: 3,
            since,
            node: "node-1".to_owned(),
            version: "0.1.0".to_owned(),
        };
        let status = OwnStatus { agents: own_agents("hub-1", vec![record("b"), record("a")]), join: None };
        let agent = |connection: &str| {
            json!({
                "hub": "hub-1", "connection": connection, "epoch": 3, "since": "2026-01-01T10:00:00Z",
                "node": "node-1", "version": "0.1.0",
            })
        };
        let expected = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel", "metadata": {"name": "blue"},
            "status": {"agents": [agent("a"), agent("b")], "joins": []},
        });
        assert_eq!(patch("blue", &status), expected);
    }

    #[test]
    fn a_replica_writes_a_limited_number_of_agents() {
        let start: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let records = (0..100_u32).map(|number| AgentRecord {
            connection: format!("{number:03}"),
            epoch: 1,
            since: start + Duration::from_secs((100 - number).into()),
            node: String::new(),
            version: String::new(),
        });
        let agents = own_agents("hub-1", records.collect());
        assert_eq!(agents.len(), MAX_AGENTS_PER_HUB);
        let expected = format!("{:03}", 100 - MAX_AGENTS_PER_HUB);
        assert_eq!(agents[0].connection, expected, "the oldest connections, sorted by their names");
    }

    #[test]
    fn a_status_that_differs_is_written_again() {
        let tunnel = TunnelKey { id: TunnelId::random().unwrap(), owner: TunnelOwner::of("fleet", "blue") };
        let time: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let record = AgentRecord {
            connection: "a".to_owned(),
            epoch: 1,
            since: time,
            node: String::new(),
            version: String::new(),
        };
        let connected = OwnStatus { agents: own_agents("hub-1", vec![record]), join: None };
        let join = Some(TunnelJoin { hub: "hub-1".to_owned(), epoch: 1, at: seconds(time) });
        let joined = OwnStatus { join, ..OwnStatus::default() };
        let mut state = State::default();
        assert!(!state.adopt(tunnel, &OwnStatus::default()), "nothing to write");
        assert!(state.adopt(tunnel, &connected), "an agent of an earlier process");
        assert!(!state.adopt(tunnel, &joined), "a join of an earlier process stays");
        assert!(state.adopt(tunnel, &OwnStatus::default()), "a move has lost the join");
        state.desired.insert(tunnel, connected.clone());
        assert!(!state.adopt(tunnel, &connected));
        // The object is deleted.
        state.forget_deleted(|_| false);
        assert!(state.desired.contains_key(&tunnel), "its agents are still connected");
        state.desired.insert(tunnel, joined);
        state.forget_deleted(|served| served == tunnel);
        state.forget(tunnel, false);
        assert!(state.desired.contains_key(&tunnel), "it is served, or not listed yet");
        let joined = state.desired.clone();
        state.forget_deleted(|_| false);
        assert!(state.desired.is_empty());
        // The agents were disconnected only afterwards.
        state.desired = joined;
        state.forget(tunnel, true);
        assert!(state.desired.is_empty());
        state.desired.insert(tunnel, connected);
        state.forget(tunnel, true);
        assert!(state.desired.contains_key(&tunnel), "its agents are still connected");
    }
}
