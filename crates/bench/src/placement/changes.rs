//! Changes a label of a Cluster, and measures until its release objects have the values that follow from it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use chandler_api::capi::CLUSTER_NAME_LABEL;
use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cluster_registration::{TIER_LABEL, clusters},
    environment::{NAMESPACE, proxy_resource},
};

const TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two changes, so that each is measured alone.
const PAUSE: Duration = Duration::from_millis(100);

/// The template of the values. The label is in a comment: the release object changes, the release does not.
pub const VALUES_TEMPLATE: &str = "# tier {{ .Cluster.metadata.labels.tier }}\ngreeting: hello\n";

/// The text of the release objects' values, by cluster and name of the release object.
type Values = BTreeMap<String, BTreeMap<String, String>>;

/// Changes the labels of some clusters, the samples.
pub struct LabelChanges {
    clusters: Api<DynamicObject>,
    samples: Vec<String>,
    placements: usize,
    values: watch::Receiver<Values>,
    /// Number of changes so far.
    changes: usize,
    _task: AbortOnDropHandle<()>,
}

impl LabelChanges {
    /// Watches the release objects of the samples, and waits until the watch shows all of them.
    pub async fn start(client: &Client, samples: Vec<String>, placements: usize) -> Result<Self> {
        ensure!(!samples.is_empty(), "there is no cluster whose label could be changed");
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), NAMESPACE, &proxy_resource("HelmReleaseProxy"));
        let selector = format!("{CLUSTER_NAME_LABEL} in ({})", samples.join(","));
        let (sender, values) = watch::channel(Values::new());
        let task = tokio::spawn(async move {
            let config = watcher::Config::default().labels(&selector);
            let mut events = watcher(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        sender.send_modify(|values| store(values, &object));
                    }
                    Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                    Err(error) => tracing::warn!(%error, "watching release objects failed"),
                }
            }
        });
        let task = AbortOnDropHandle::new(task);
        let mut changes =
            Self { clusters: clusters(client), samples, placements, values, changes: 0, _task: task };
        changes.wait_listed().await?;
        Ok(changes)
    }

    async fn wait_listed(&mut self) -> Result<()> {
        let (samples, placements) = (&self.samples, self.placements);
        let listed = self.values.wait_for(|values| {
            let is_listed =
                |cluster: &String| values.get(cluster).is_some_and(|releases| releases.len() == placements);
            samples.iter().all(is_listed)
        });
        tokio::time::timeout(TIMEOUT, listed)
            .await
            .context("the release objects of the changed Clusters were not listed in time")?
            .context("the watch on release objects has ended")?;
        Ok(())
    }

    /// Changes labels one after the other. Returns how long each took until all release objects of its cluster were
    /// written.
    pub async fn measure(&mut self, count: u32, mut progress: impl FnMut(u32)) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for done in 0..count {
            let started = Instant::now();
            let (cluster, tier) = self.change().await?;
            self.wait_written(&cluster, &tier).await?;
            times.push(started.elapsed());
            progress(done + 1);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(times)
    }

    /// Changes labels at a rate, without waiting for the release objects.
    pub async fn churn(&mut self, duration: Duration, per_second: u32) -> Result<()> {
        let end = Instant::now() + duration;
        let mut interval = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
        while Instant::now() < end {
            interval.tick().await;
            self.change().await?;
        }
        Ok(())
    }

    /// Gives the next sample a value of the label that no cluster has had.
    async fn change(&mut self) -> Result<(String, String)> {
        let cluster = self.samples[self.changes % self.samples.len()].clone();
        self.changes += 1;
        let tier = format!("change-{}", self.changes);
        let patch = Patch::Merge(json!({"metadata": {"labels": {TIER_LABEL: tier}}}));
        let parameters = PatchParams::default();
        let patched = self.clusters.patch_metadata(&cluster, &parameters, &patch);
        tokio::time::timeout(TIMEOUT, patched)
            .await
            .with_context(|| format!("changing the label of {cluster} timed out"))?
            .with_context(|| format!("changing the label of {cluster}"))?;
        Ok((cluster, tier))
    }

    async fn wait_written(&mut self, cluster: &str, tier: &str) -> Result<()> {
        let placements = self.placements;
        let written = self.values.wait_for(|values| count_written(values, cluster, tier) == placements);
        tokio::time::timeout(TIMEOUT, written)
            .await
            .with_context(|| format!("the release objects of {cluster} were not written for {tier}"))?
            .context("the watch on release objects has ended")?;
        Ok(())
    }
}

fn store(values: &mut Values, object: &DynamicObject) {
    let Some(cluster) = object.data["spec"]["clusterRef"]["name"].as_str() else { return };
    let text = object.data["spec"]["values"].as_str().unwrap_or_default();
    values.entry(cluster.to_owned()).or_default().insert(object.name_any(), text.to_owned());
}

/// Returns how many release objects of the cluster have the values of this tier.
fn count_written(values: &Values, cluster: &str, tier: &str) -> usize {
    let line = VALUES_TEMPLATE.lines().next().unwrap_or_default();
    let expected = line.replace("{{ .Cluster.metadata.labels.tier }}", tier);
    let of_cluster = values.get(cluster).into_iter().flat_map(BTreeMap::values);
    of_cluster.filter(|text| text.lines().next() == Some(expected.as_str())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, cluster: &str, values: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "X", "metadata": {"name": name},
            "spec": {"clusterRef": {"name": cluster}, "values": values},
        }))
        .unwrap()
    }

    #[test]
    fn only_release_objects_with_the_new_values_count() {
        let mut values = Values::new();
        for (name, cluster, text) in [
            ("a-1", "c1", "# tier change-1\ngreeting: hello\n"),
            ("b-1", "c1", "# tier change-10\ngreeting: hello\n"),
            ("a-2", "c2", "# tier change-1\ngreeting: hello\n"),
        ] {
            store(&mut values, &object(name, cluster, text));
        }
        assert_eq!(count_written(&values, "c1", "change-1"), 1);
        assert_eq!(count_written(&values, "c3", "change-1"), 0);
        store(&mut values, &object("b-1", "c1", "# tier change-1\ngreeting: hello\n"));
        assert_eq!(count_written(&values, "c1", "change-1"), 2);
    }
}
