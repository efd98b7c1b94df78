//! Prometheus metrics of the hub. The number of label values does not depend on the number of tunnels.

use std::sync::{Arc, atomic::Ordering};

use chandler_tunnel::Traffic;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Metric, Registry},
};

use crate::proxy::Refusal;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// How a request to join ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinResult {
    Joined,
    Renewed,
    Refused,
    Limited,
    Invalid,
}

impl JoinResult {
    const ALL: [Self; 5] = [Self::Joined, Self::Renewed, Self::Refused, Self::Limited, Self::Invalid];

    fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Renewed => "renewed",
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Invalid => "invalid",
        }
    }
}

/// How a connection to the public port ended its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    Accepted,
    Failed,
    /// The certificate is valid, but its tunnel or epoch is not.
    Revoked,
    /// Too many handshakes at once, also if this one was dropped for another, or the ClusterTunnels are not listed yet.
    Unavailable,
}

impl HandshakeResult {
    const ALL: [Self; 4] = [Self::Accepted, Self::Failed, Self::Revoked, Self::Unavailable];

    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Revoked => "revoked",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    agents: Gauge,
    streams: Gauge,
    peers: Gauge,
    bytes: Family<DirectionLabels, Counter>,
    buffered: Gauge,
    joins: Family<ResultLabels, Counter>,
    handshakes: Family<ResultLabels, Counter>,
    connects: Counter,
    refused: Family<ReasonLabels, Counter>,
    status_failures: Counter,
}

/// Decrements a gauge when it is dropped.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("chandler");
        let version = [("version", env!("CARGO_PKG_VERSION"))].to_vec();
        registry.register("build", "The version of Chandler", Info::new(version));
        let to = &mut registry;
        let metrics = Self {
            agents: add(to, "hub_agents", "Connections of agents to this hub", Gauge::default()),
            streams: add(to, "hub_streams", "Open streams to workload clusters", Gauge::default()),
            peers: add(to, "hub_peers", "Connections to other replicas of the hub", Gauge::default()),
            bytes: add(
                to,
                "hub_bytes",
                "Bytes that this replica has carried, by direction: to_cluster or from_cluster",
                Family::default(),
            ),
            buffered: add(to, "hub_buffered_bytes", "Bytes that wait in buffers", Gauge::default()),
            joins: add(to, "hub_joins", "Requests of agents to join, by result", Family::default()),
            handshakes: add(
                to,
                "hub_handshakes",
                "Connections to the public port, by result",
                Family::default(),
            ),
            connects: add(
                to,
                "hub_connects",
                "Requests to the proxy that opened a stream",
                Counter::default(),
            ),
            refused: add(
                to,
                "hub_connects_refused",
                "Requests that the proxy refused, by reason",
                Family::default(),
            ),
            status_failures: add(
                to,
                "hub_status_failures",
                "Failed updates of the status of ClusterTunnels; they are retried",
                Counter::default(),
            ),
            registry: Arc::default(),
        };
        metrics.create_series();
        Self { registry: Arc::new(registry), ..metrics }
    }

    /// Creates all series, because `increase()` misses the first sample of a new series.
    fn create_series(&self) {
        for result in JoinResult::ALL {
            drop(self.joins.get_or_create(&ResultLabels { result: result.as_str() }));
        }
        for result in HandshakeResult::ALL {
            drop(self.handshakes.get_or_create(&ResultLabels { result: result.as_str() }));
        }
        for reason in Refusal::REASONS {
            drop(self.refused.get_or_create(&ReasonLabels { reason }));
        }
        for direction in ["to_cluster", "from_cluster"] {
            drop(self.bytes.get_or_create(&DirectionLabels { direction }));
        }
    }

    /// Counts an agent connection until the result is dropped.
    pub fn agent_connected(&self) -> Counted {
        Counted::new(&self.agents)
    }

    /// Counts a connection to a peer until the result is dropped.
    pub fn peer_connected(&self) -> Counted {
        Counted::new(&self.peers)
    }

    /// Counts an open stream until the result is dropped.
    pub fn stream_opened(&self) -> Counted {
        self.connects.inc();
        Counted::new(&self.streams)
    }

    /// Sets the bytes to what the pumps have counted.
    pub fn set_traffic(&self, traffic: &Traffic) {
        for (direction, bytes) in
            [("to_cluster", traffic.to_stream()), ("from_cluster", traffic.from_stream())]
        {
            self.bytes.get_or_create(&DirectionLabels { direction }).inner().store(bytes, Ordering::Relaxed);
        }
    }

    /// Sets the bytes that wait in buffers.
    pub fn set_buffered(&self, bytes: usize) {
        self.buffered.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn join(&self, result: JoinResult) {
        self.joins.get_or_create(&ResultLabels { result: result.as_str() }).inc();
    }

    pub fn handshake(&self, result: HandshakeResult) {
        self.handshakes.get_or_create(&ResultLabels { result: result.as_str() }).inc();
    }

    pub fn refused(&self, refusal: &Refusal) {
        self.refused.get_or_create(&ReasonLabels { reason: refusal.reason() }).inc();
    }

    pub fn status_failed(&self) {
        self.status_failures.inc();
    }

    /// Returns the number of agent connections.
    pub fn agents(&self) -> i64 {
        self.agents.get()
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> i64 {
        self.streams.get()
    }

    /// Returns the metrics in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# cannot write metrics: {error}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_open() {
        let metrics = Metrics::new();
        let (one, other) = (metrics.stream_opened(), metrics.stream_opened());
        drop(one);
        metrics.set_buffered(3);
        metrics.refused(&Refusal::WrongPassword);
        let text = metrics.text();
        for line in [
            "chandler_hub_streams 1",
            "chandler_hub_connects_total 2",
            "chandler_hub_bytes_total{direction=\"to_cluster\"} 0",
            "chandler_hub_buffered_bytes 3",
            "chandler_hub_connects_refused_total{reason=\"wrong_password\"} 1",
            "chandler_hub_connects_refused_total{reason=\"no_agent\"} 0",
            "chandler_hub_joins_total{result=\"limited\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        drop(other);
        assert_eq!(metrics.streams(), 0);
    }
}
