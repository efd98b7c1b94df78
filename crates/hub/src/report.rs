//! What the hub reports about its tunnels, without knowing where.

use chandler_tunnel::TunnelKey;
use jiff::Timestamp;

/// A connection of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRecord {
    /// Identifies the connection at this hub; different for every connection, also after a restart.
    pub connection: String,
    /// The epoch of the agent's certificate.
    pub epoch: u32,
    pub since: Timestamp,
    /// As the agent says.
    pub node: String,
    /// As the agent says.
    pub version: String,
}

/// A request to join, whose tunnel is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinReport {
    /// The hub has issued a certificate for a join token.
    Joined { epoch: u32, from: String },
    /// The hub has issued a certificate for an older certificate.
    Renewed { epoch: u32 },
    /// The token or certificate is genuine, but not valid any more.
    Refused { from: String, message: String },
}

/// Receives reports. The calls do not block.
pub trait Reporter: Send + Sync + 'static {
    /// The connections of a tunnel's agents to this hub have changed. `agents` are all of them.
    fn agents_changed(&self, tunnel: TunnelKey, agents: Vec<AgentRecord>);

    fn join(&self, tunnel: TunnelKey, report: JoinReport);
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReports;

impl Reporter for NoReports {
    fn agents_changed(&self, _: TunnelKey, _: Vec<AgentRecord>) {}

    fn join(&self, _: TunnelKey, _: JoinReport) {}
}
