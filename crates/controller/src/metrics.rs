//! What Chandler counts. Every label has few values, whatever the size of the fleet.

use std::sync::Arc;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    operations: Family<OperationLabels, Counter>,
    durations: Family<KindLabels, Histogram>,
    passes: Family<KindLabels, Counter>,
    tool_calls: Family<CallLabels, Counter>,
    queued: Gauge,
    active: Gauge,
    tool_starts: Gauge,
    tool_bytes: Gauge,
    connections: Gauge,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("chandler");
        let operations = Family::default();
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        let (passes, tool_calls) = (Family::default(), Family::default());
        let (queued, active, tool_starts) = (Gauge::default(), Gauge::default(), Gauge::default());
        let (tool_bytes, connections) = (Gauge::default(), Gauge::default());
        registry.register(
            "operations",
            "Operations on releases that ended, by kind and outcome",
            operations.clone(),
        );
        registry.register(
            "operation_duration_seconds",
            "How long operations took, by kind",
            durations.clone(),
        );
        registry.register("passes", "Passes over objects, by kind", passes.clone());
        registry.register("tool_calls", "Calls to the package tool, by verb", tool_calls.clone());
        registry.register("operations_queued", "Operations that wait for a slot", queued.clone());
        registry.register("operations_active", "Operations that hold a slot", active.clone());
        registry.register("tool_starts", "How often the package tool was started", tool_starts.clone());
        registry.register("tool_resident_bytes", "Resident memory of the package tool", tool_bytes.clone());
        registry.register("workload_connections", "Workload clusters that are followed", connections.clone());
        let registry = Arc::new(registry);
        Self {
            registry,
            operations,
            durations,
            passes,
            tool_calls,
            queued,
            active,
            tool_starts,
            tool_bytes,
            connections,
        }
    }

    pub fn pass(&self, kind: &'static str) {
        self.passes.get_or_create(&KindLabels { kind }).inc();
    }

    pub fn tool_call(&self, verb: &'static str) {
        self.tool_calls.get_or_create(&CallLabels { verb }).inc();
    }

    pub fn operation(&self, kind: &'static str, outcome: &'static str, seconds: f64) {
        self.operations.get_or_create(&OperationLabels { kind, outcome }).inc();
        self.durations.get_or_create(&KindLabels { kind }).observe(seconds);
    }

    pub fn slots(&self, queued: usize, active: usize) {
        self.queued.set(count(queued));
        self.active.set(count(active));
    }

    pub fn tool(&self, starts: u64, resident_bytes: u64) {
        self.tool_starts.set(i64::try_from(starts).unwrap_or(i64::MAX));
        self.tool_bytes.set(i64::try_from(resident_bytes).unwrap_or(i64::MAX));
    }

    pub fn connections(&self, open: usize) {
        self.connections.set(count(open));
    }

    /// In Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# cannot write metrics: {error}\n"),
        }
    }
}

fn buckets() -> Histogram {
    Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0])
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
