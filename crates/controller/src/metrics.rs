//! Prometheus metrics. The number of series does not depend on the size of the fleet.

mod labels;
mod quotas;
mod scrape;

use std::sync::Arc;

use chandler_core::failure::Category;
use chandler_telemetry::RequestCount;
use chandler_workload::Census;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry},
};
use tokio::sync::Mutex;

pub use self::labels::Quota;
use self::labels::{
    CacheLabels, CallLabels, CategoryLabels, ChangeLabels, ClientLabels, ClusterLabels, KindLabels,
    OperationLabels, RequestLabels, ScopeLabels, StateLabels,
};
use self::quotas::QuotaMetrics;
pub use self::scrape::{CatalogCounts, ReleaseCounts, Sources};
use crate::ManagementError;

type Histograms = Family<KindLabels, Histogram, fn() -> Histogram>;

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Serializes scrapes, because each one sets gauges.
    scraping: Arc<Mutex<()>>,
    leader: Gauge,
    releases: Family<StateLabels, Gauge>,
    failing: Family<CategoryLabels, Gauge>,
    unhealthy: Family<KindLabels, Gauge>,
    drifted: Family<KindLabels, Gauge>,
    failures: Family<CategoryLabels, Counter>,
    operations: Family<OperationLabels, Counter>,
    durations: Histograms,
    slot_waits: Histograms,
    queued: Gauge,
    active: Gauge,
    reconciles: Family<KindLabels, Counter>,
    reconcile_durations: Histograms,
    reconcile_errors: Family<CategoryLabels, Counter>,
    placement_reconciles: Family<ScopeLabels, Counter>,
    queue_depth: Family<KindLabels, Gauge>,
    queue_waits: Histograms,
    workload: WorkloadMetrics,
    management_requests: Family<RequestLabels, Counter>,
    caches: Family<CacheLabels, Counter>,
    catalogs: Family<StateLabels, Gauge>,
    tunnel: TunnelMetrics,
    quotas: QuotaMetrics,
    republished: Counter,
    tool: ToolMetrics,
}

/// Registers metrics.
struct Registering(Registry);

impl Registering {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("chandler");
        let version = [("version", env!("CARGO_PKG_VERSION"))].to_vec();
        registry.register("build", "The version of Chandler", Info::new(version));
        Self(registry)
    }

    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn histograms(&mut self, name: &str, help: &str, buckets: fn() -> Histogram) -> Histograms {
        self.add(name, help, Family::new_with_constructor(buckets))
    }
}

/// Metrics about workload clusters.
#[derive(Clone, Debug)]
struct WorkloadMetrics {
    clusters: Family<ClusterLabels, Gauge>,
    cluster_outages: Counter,
    connections: Gauge,
    requests: Family<ClientLabels, Counter>,
}

impl WorkloadMetrics {
    fn new(to: &mut Registering) -> Self {
        Self {
            clusters: to.add(
                "workload_clusters",
                "Workload clusters by state: connected (their releases are watched), connecting, unavailable \
                 (with the category of the failure)",
                Family::default(),
            ),
            cluster_outages: to.add(
                "workload_cluster_outages",
                "How often a workload cluster became unavailable: it did not answer for 22 s, or it refused",
                Counter::default(),
            ),
            connections: to.add("workload_connections", "Connections to workload clusters", Gauge::default()),
            requests: to.add(
                "workload_requests",
                "Requests to workload clusters, by client (manager, or tool since its last start), verb and result",
                Family::default(),
            ),
        }
    }
}

/// Metrics about tunnels.
#[derive(Clone, Debug)]
struct TunnelMetrics {
    tunnels: Family<StateLabels, Gauge>,
    kubeconfig_writes: Family<ChangeLabels, Counter>,
}

impl TunnelMetrics {
    fn new(to: &mut Registering) -> Self {
        Self {
            tunnels: to.add(
                "tunnels",
                "ClusterTunnels by state: Connected, Disconnected, or Pending (no agent has ever been connected)",
                Family::default(),
            ),
            kubeconfig_writes: to.add(
                "tunnel_kubeconfig_writes",
                "Kubeconfig Secrets that were written, by what happened to their proxy: added, repaired after Cluster API \
                 has replaced the kubeconfig, or removed",
                Family::default(),
            ),
        }
    }
}

/// Metrics about package tools.
#[derive(Clone, Debug)]
struct ToolMetrics {
    calls: Family<CallLabels, Counter>,
    starts: Counter,
    crashes: Counter,
    bytes: Gauge,
}

impl ToolMetrics {
    fn new(to: &mut Registering) -> Self {
        Self {
            calls: to.add("tool_calls", "Calls to the package tool, by verb", Family::default()),
            starts: to.add(
                "tool_starts",
                "Starts of package tools and of the template service",
                Counter::default(),
            ),
            crashes: to.add(
                "tool_crashes",
                "Unexpected ends of package tools and of the template service",
                Counter::default(),
            ),
            bytes: to.add(
                "tool_resident_bytes",
                "Resident memory of package tools and of the template service",
                Gauge::default(),
            ),
        }
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut to = Registering::new();
        Self {
            leader: to.add("leader", "1 if this process is the leader, else 0", Gauge::default()),
            releases: to.add(
                "releases",
                "Release objects by kind and state, as `chandler get` shows it",
                Family::default(),
            ),
            failing: to.add(
                "releases_failing",
                "Release objects with an unresolved failure, by kind and category",
                Family::default(),
            ),
            unhealthy: to.add(
                "unhealthy_releases",
                "Release objects with the condition Healthy False: an object of the release is missing or not healthy",
                Family::default(),
            ),
            drifted: to.add(
                "drifted_releases",
                "Release objects with the condition Drifted True: others have changed or deleted an object of the release",
                Family::default(),
            ),
            failures: to.add(
                "release_failures",
                "Failures of release objects, by kind and category",
                Family::default(),
            ),
            operations: to.add(
                "operations",
                "Finished operations, by kind and outcome: success, the category of the failure, or drifted, corrected or failed",
                Family::default(),
            ),
            durations: to.histograms(
                "operation_duration_seconds",
                "Duration of operations from getting a slot to their end, including waits for readiness, by kind",
                long,
            ),
            slot_waits: to.histograms(
                "operation_wait_seconds",
                "Time that operations waited for a slot, by kind",
                long,
            ),
            queued: to.add("operations_queued", "Operations that wait for a slot", Gauge::default()),
            active: to.add("operations_active", "Operations that occupy a slot", Gauge::default()),
            reconciles: to.add("reconciles", "Reconciles, by kind", Family::default()),
            reconcile_durations: to.histograms(
                "reconcile_duration_seconds",
                "Duration of reconciles, by kind",
                short,
            ),
            reconcile_errors: to.add(
                "reconcile_errors",
                "Reconciles that failed and are retried, by kind and category",
                Family::default(),
            ),
            placement_reconciles: to.add(
                "placement_reconciles",
                "Reconciles of placements, by kind and by the reconciled clusters: all clusters of the placement, some, \
                 or none (its status only)",
                Family::default(),
            ),
            queue_depth: to.add("queue_depth", "Objects that wait for a reconcile, by kind", Family::default()),
            queue_waits: to.histograms(
                "queue_wait_seconds",
                "Time that enqueued objects waited for their reconcile, by kind",
                short,
            ),
            workload: WorkloadMetrics::new(&mut to),
            management_requests: to.add(
                "management_requests",
                "Requests to the management cluster, by verb and result",
                Family::default(),
            ),
            caches: to.add("cache_requests", "Cache lookups, by cache and result: hit or miss", Family::default()),
            catalogs: to.add(
                "catalogs",
                "Catalogs by state: Ready, Failed (the last successful read stays in use) or Unread",
                Family::default(),
            ),
            tunnel: TunnelMetrics::new(&mut to),
            quotas: QuotaMetrics::new(&mut to),
            republished: to.add(
                "packages_republished",
                "Releases whose package version was published again with other content; they are not upgraded",
                Counter::default(),
            ),
            tool: ToolMetrics::new(&mut to),
            scraping: Arc::default(),
            registry: Arc::new(to.0),
        }
    }

    /// Records that this process is the leader.
    pub fn leads(&self) {
        self.leader.set(1);
    }

    /// Records the start of a reconcile and the time in the queue. `None` means that a timer has triggered it.
    pub fn reconcile_started(&self, kind: &'static str, waited: Option<f64>) {
        self.reconciles.get_or_create(&KindLabels { kind }).inc();
        if let Some(seconds) = waited {
            self.queue_waits.get_or_create(&KindLabels { kind }).observe(seconds);
        }
    }

    pub fn reconcile_ended(&self, kind: &'static str, seconds: f64) {
        self.reconcile_durations.get_or_create(&KindLabels { kind }).observe(seconds);
    }

    pub fn reconcile_failed(&self, kind: &'static str, category: Category) {
        self.reconcile_errors.get_or_create(&CategoryLabels { kind, category: category.as_str() }).inc();
    }

    /// Creates the series of a kind of placements, because `increase()` misses the first sample of a new series.
    pub fn placement_kind(&self, kind: &'static str) {
        for clusters in ["all", "some", "none"] {
            drop(self.placement_reconciles.get_or_create(&ScopeLabels { kind, clusters }));
        }
    }

    /// Records a reconcile of a placement for `all`, `some` or `none` of its clusters.
    pub fn placement_reconcile(&self, kind: &'static str, clusters: &'static str) {
        self.placement_reconciles.get_or_create(&ScopeLabels { kind, clusters }).inc();
    }

    /// Returns the gauge of the objects of a kind that wait for a reconcile.
    pub fn queue_depth(&self, kind: &'static str) -> Gauge {
        // Creates the series early, because `increase()` misses the first sample of a new series.
        for category in ManagementError::CATEGORIES {
            drop(self.reconcile_errors.get_or_create(&CategoryLabels { kind, category: category.as_str() }));
        }
        self.queue_depth.get_or_create(&KindLabels { kind }).clone()
    }

    pub fn tool_call(&self, verb: &'static str) {
        self.tool.calls.get_or_create(&CallLabels { verb }).inc();
    }

    pub fn failed(&self, kind: &'static str, category: Category) {
        self.failures.get_or_create(&CategoryLabels { kind, category: category.as_str() }).inc();
    }

    pub fn republished(&self) {
        self.republished.inc();
    }

    /// Records that work of a namespace has to wait, or is limited, because of a quota.
    pub fn quota_reached(&self, quota: Quota) {
        self.quotas.reached(quota);
    }

    /// Creates the series of kubeconfig writes, because `increase()` misses the first sample of a new series.
    pub fn tunnels_enabled(&self) {
        for change in ["added", "repaired", "removed"] {
            drop(self.tunnel.kubeconfig_writes.get_or_create(&ChangeLabels { change }));
        }
    }

    /// Records that the proxy of a kubeconfig was `added`, `repaired` or `removed`.
    pub fn kubeconfig_written(&self, change: &'static str) {
        self.tunnel.kubeconfig_writes.get_or_create(&ChangeLabels { change }).inc();
    }

    pub fn cache(&self, cache: &'static str, hit: bool) {
        self.caches.get_or_create(&CacheLabels::new(cache, hit)).inc();
    }

    pub fn operation(&self, kind: &'static str, outcome: &'static str, seconds: f64) {
        self.operations.get_or_create(&OperationLabels { kind, outcome }).inc();
        self.durations.get_or_create(&KindLabels { kind }).observe(seconds);
    }

    pub fn slots(&self, queued: usize, active: usize) {
        self.queued.set(count(queued));
        self.active.set(count(active));
    }

    /// Records that an operation has got a slot.
    pub fn slot(&self, kind: &'static str, waited: f64) {
        self.slot_waits.get_or_create(&KindLabels { kind }).observe(waited);
    }

    /// Encodes the metrics in the OpenMetrics text format.
    fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# cannot write metrics: {error}\n"),
        }
    }
}

/// Buckets for work that waits for clusters.
fn long() -> Histogram {
    Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0])
}

/// Buckets for work inside the manager.
fn short() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0])
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
