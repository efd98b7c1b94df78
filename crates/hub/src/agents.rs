//! The connections of agents to this replica, by tunnel.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use chandler_tunnel::{AgentConnection, TunnelIdentity, TunnelKey, join_message::About};
use jiff::Timestamp;

use crate::{
    locks::Mutex,
    metrics::{Counted, Metrics},
    report::{AgentRecord, Reporter},
};

/// Connections that the agents of one tunnel may have to one replica. Several control plane nodes with a few connections
/// each need less.
const MAX_CONNECTIONS: usize = 64;

/// The connections of agents. Clones share them.
#[derive(Clone)]
pub struct Agents(Arc<Shared>);

struct Shared {
    /// The id of this replica, which makes the ids of connections unique.
    replica: String,
    serial: AtomicU64,
    reporter: Arc<dyn Reporter>,
    metrics: Metrics,
    tunnels: Mutex<HashMap<TunnelKey, Vec<Registered>>>,
}

struct Registered {
    record: AgentRecord,
    connection: AgentConnection,
    _counted: Counted,
}

/// A registered connection. Dropping it removes and closes the connection.
pub struct Registration {
    agents: Agents,
    tunnel: TunnelKey,
    id: String,
    connection: AgentConnection,
}

impl Agents {
    pub fn new(replica: String, reporter: Arc<dyn Reporter>, metrics: Metrics) -> Self {
        let (serial, tunnels) = (AtomicU64::new(1), Mutex::default());
        Self(Arc::new(Shared { replica, serial, reporter, metrics, tunnels }))
    }

    /// Adds a connection, whose identity is verified. Returns `None` if the tunnel has too many.
    pub fn register(
        &self,
        identity: TunnelIdentity,
        connection: AgentConnection,
        about: About,
    ) -> Option<Registration> {
        let (tunnel, epoch) = (identity.key(), identity.epoch);
        let serial = self.0.serial.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{serial}", self.0.replica);
        let About { node, version } = about;
        let record = AgentRecord { connection: id.clone(), epoch, since: Timestamp::now(), node, version };
        let mut tunnels = self.0.tunnels.lock();
        let registered = tunnels.entry(tunnel).or_default();
        if registered.len() >= MAX_CONNECTIONS {
            return None;
        }
        registered.push(Registered {
            record,
            connection: connection.clone(),
            _counted: self.0.metrics.agent_connected(),
        });
        self.report(tunnel, registered);
        Some(Registration { agents: self.clone(), tunnel, id, connection })
    }

    /// Returns the connections of agents with a certificate of this epoch on which streams can be opened, the one with the fewest
    /// streams first.
    pub fn connections(&self, tunnel: TunnelKey, epoch: u32) -> Vec<AgentConnection> {
        let tunnels = self.0.tunnels.lock();
        let registered = tunnels.get(&tunnel).into_iter().flatten();
        let mut usable: Vec<_> = registered
            .filter(|registered| registered.record.epoch == epoch)
            .map(|registered| registered.connection.clone())
            .filter(AgentConnection::is_usable)
            .collect();
        drop(tunnels);
        usable.sort_by_cached_key(AgentConnection::open_streams);
        usable
    }

    /// Reports under the lock, so that the last report is the current state.
    fn report(&self, tunnel: TunnelKey, registered: &[Registered]) {
        let records = registered.iter().map(|registered| registered.record.clone()).collect();
        self.0.reporter.agents_changed(tunnel, records);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connection.close();
        let mut tunnels = self.agents.0.tunnels.lock();
        let Some(registered) = tunnels.get_mut(&self.tunnel) else { return };
        registered.retain(|registered| registered.record.connection != self.id);
        self.agents.report(self.tunnel, registered);
        if registered.is_empty() {
            tunnels.remove(&self.tunnel);
        }
    }
}
