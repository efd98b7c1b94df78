//! Metrics that are computed on scrape from the caches, without requests.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use chandler_api::status::{DRIFTED, HEALTHY, ReleaseStatus};
use chandler_core::{
    conditions,
    failure::Category,
    release::{ReleaseKind, State},
};
use chandler_source::Packages;
use chandler_telemetry::RequestCounter;
use chandler_tool::{TemplateService, Tools};
use chandler_workload::Connections;
use prometheus_client::metrics::counter::Counter;

use super::{
    CacheLabels, CategoryLabels, Census, ClientLabels, ClusterLabels, KindLabels, Metrics, RequestCount,
    RequestLabels, StateLabels, count,
};
use crate::{
    caches::AllKinds,
    catalog::Catalogs,
    status,
    tunnel::{TunnelCounts, Tunnels},
};

/// The data sources of a scrape.
#[derive(Clone)]
pub struct Sources {
    pub tools: Tools,
    pub templates: TemplateService,
    pub connections: Connections,
    pub packages: Arc<Packages>,
    pub all_kinds: AllKinds,
    pub catalogs: Catalogs,
    pub tunnels: Tunnels,
    /// Requests to the management cluster.
    pub requests: RequestCounter,
}

/// The release objects of one kind, by state and failure.
pub struct ReleaseCounts {
    kind: &'static str,
    states: BTreeMap<State, usize>,
    failing: BTreeMap<Category, usize>,
    /// With objects that are missing or not healthy.
    unhealthy: usize,
    /// With objects that others have changed.
    drifted: usize,
}

impl ReleaseCounts {
    pub fn of<R: ReleaseKind>(objects: &[Arc<R>]) -> Self {
        let (mut by_state, mut failing) = (BTreeMap::new(), BTreeMap::new());
        let (mut unhealthy, mut drifted) = (0, 0);
        for object in objects {
            *by_state.entry(State::of(&**object)).or_default() += 1;
            let Some(status) = object.status() else { continue };
            unhealthy += usize::from(has(status, HEALTHY, "False"));
            drifted += usize::from(has(status, DRIFTED, "True"));
            if let Some(failure) = &status.last_failure {
                *failing.entry(Category::parse(&failure.category)).or_default() += 1;
            }
        }
        Self { kind: status::kind::<R>(), states: by_state, failing, unhealthy, drifted }
    }
}

fn has(status: &ReleaseStatus, type_: &str, value: &str) -> bool {
    conditions::find(&status.conditions, type_).is_some_and(|condition| condition.status == value)
}

/// Catalogs by the result of their last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogCounts {
    pub ready: usize,
    pub failed: usize,
    pub unread: usize,
}

impl Metrics {
    /// Returns all metrics in the OpenMetrics text format.
    pub async fn scrape(&self, sources: &Sources) -> String {
        let _alone = self.scraping.lock().await;
        self.processes(sources);
        self.workload_clusters(&sources.connections.census());
        set(&self.workload.cluster_outages, sources.connections.outages());
        self.workload_requests("manager", &sources.connections.requests().counts());
        self.workload_requests("tool", &sources.tools.requests().await);
        for RequestCount { verb, result, count } in sources.requests.counts() {
            set(&self.management_requests.get_or_create(&RequestLabels { verb, result }), count);
        }
        for (cache, (hits, misses)) in sources.packages.cache_hits() {
            set(&self.caches.get_or_create(&CacheLabels::new(cache, true)), hits);
            set(&self.caches.get_or_create(&CacheLabels::new(cache, false)), misses);
        }
        self.quotas.set(sources.packages.quota_usage());
        self.failing.clear();
        for counts in sources.all_kinds.release_counts() {
            self.releases(&counts);
        }
        self.catalogs(sources.catalogs.counts());
        if let Some(counts) = sources.tunnels.counts() {
            self.tunnels(counts);
        }
        self.text()
    }

    /// Sums up the processes of the package tools and of the template service.
    fn processes(&self, sources: &Sources) {
        let (mut starts, mut bytes) = sources.tools.stats();
        let (started, process) = sources.templates.supervisor().stats();
        starts += started;
        bytes += process.map_or(0, |process| process.resident_bytes);
        set(&self.tool.starts, starts);
        set(&self.tool.crashes, sources.tools.crashes() + sources.templates.supervisor().crashes());
        self.tool.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn releases(&self, counts: &ReleaseCounts) {
        let kind = counts.kind;
        // A missing release has no object to count.
        for state in State::ALL.into_iter().filter(|state| *state != State::Missing) {
            let objects = counts.states.get(&state).copied().unwrap_or_default();
            let labels = StateLabels { kind, state: state.as_str() };
            self.releases.get_or_create(&labels).set(count(objects));
        }
        self.unhealthy.get_or_create(&KindLabels { kind }).set(count(counts.unhealthy));
        self.drifted.get_or_create(&KindLabels { kind }).set(count(counts.drifted));
        for (category, objects) in &counts.failing {
            let labels = CategoryLabels { kind, category: category.as_str() };
            self.failing.get_or_create(&labels).set(count(*objects));
        }
    }

    fn workload_clusters(&self, census: &Census) {
        self.workload.connections.set(count(census.total()));
        self.workload.clusters.clear();
        let set = |state, category, clusters| {
            self.workload.clusters.get_or_create(&ClusterLabels { state, category }).set(count(clusters));
        };
        set("connected", "", census.connected);
        set("connecting", "", census.connecting);
        for (category, clusters) in &census.unavailable {
            set("unavailable", category.as_str(), *clusters);
        }
    }

    fn workload_requests(&self, client: &'static str, counts: &[RequestCount]) {
        for RequestCount { verb, result, count } in counts {
            set(&self.workload.requests.get_or_create(&ClientLabels { client, verb, result }), *count);
        }
    }

    fn tunnels(&self, counts: TunnelCounts) {
        let TunnelCounts { connected, disconnected, pending } = counts;
        let states = [("Connected", connected), ("Disconnected", disconnected), ("Pending", pending)];
        for (state, tunnels) in states {
            let labels = StateLabels { kind: "ClusterTunnel", state };
            self.tunnel.tunnels.get_or_create(&labels).set(count(tunnels));
        }
    }

    fn catalogs(&self, counts: CatalogCounts) {
        let states = [("Ready", counts.ready), ("Failed", counts.failed), ("Unread", counts.unread)];
        for (state, catalogs) in states {
            let labels = StateLabels { kind: "ExtensionCatalog", state };
            self.catalogs.get_or_create(&labels).set(count(catalogs));
        }
    }
}

/// Sets a counter to a value that is counted elsewhere.
fn set(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::{Value, json};

    use super::*;

    fn release(status: &Value) -> Arc<HelmReleaseProxy> {
        let object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy", "metadata": {"name": "hello"},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example"}, "status": status,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_releases_that_are_known_to_be_unhealthy_or_drifted_count() {
        let with = |type_: &str, status: &str| {
            let at = "2026-01-01T00:00:00Z";
            let condition = json!({"type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": at});
            release(&json!({"conditions": [condition]}))
        };
        let objects = [
            release(&Value::Null),
            release(&json!({})),
            with("Healthy", "True"),
            with("Healthy", "Unknown"),
            with("Healthy", "False"),
            with("Drifted", "True"),
            with("Drifted", "True"),
            with("Drifted", "Unknown"),
            with("Drifted", "False"),
        ];
        let counts = ReleaseCounts::of(&objects);
        assert_eq!((counts.kind, counts.unhealthy, counts.drifted), ("HelmReleaseProxy", 1, 2));
    }
}
