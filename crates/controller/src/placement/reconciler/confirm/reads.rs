//! Reads what a placement concludes from its caches, before it creates a release object again or deletes one.
//!
//! [`crate::watch`] describes why caches differ. For example, release objects that were moved to another management cluster seem to be
//! missing while their placement and Clusters still seem to be there, and Clusters that were moved here do not seem to exist while
//! their release objects do.

use std::{collections::BTreeSet, sync::Arc};

use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    naming,
    placement::{Change, ClusterFailure, PlacementKind},
};
use futures::{StreamExt as _, stream};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    core::NamespaceResourceScope,
};

use crate::{
    ManagementError,
    clusters::{self, Clusters},
    error::found,
    status,
};

/// Number of Clusters that a placement reads concurrently.
const READS: usize = 16;
/// More Clusters than this are read by one list of their namespace.
const MANY_READS: usize = 50;

/// The clusters of a placement whose release objects must not be created or deleted now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Clusters whose cached state is outdated.
    pub outdated: BTreeSet<ClusterKey>,
    /// Clusters that cannot be read, and why.
    pub failures: ClusterMap<String>,
}

impl Unconfirmed {
    pub fn contains(&self, cluster: &ClusterKey) -> bool {
        self.outdated.contains(cluster) || self.failures.contains_key(cluster)
    }

    pub fn clusters(&self) -> impl Iterator<Item = &ClusterKey> {
        self.outdated.iter().chain(self.failures.keys())
    }

    /// Returns whether a change creates a release object that must not be created.
    pub fn forbids<P: PlacementKind>(&self, change: &Change<P::Release>) -> bool {
        let Change::Apply(object) = change else { return false };
        object.meta().uid.is_none() && P::cluster_of(object).is_some_and(|cluster| self.contains(&cluster))
    }

    /// Returns the clusters that cannot be read.
    pub fn into_failures(self) -> impl Iterator<Item = ClusterFailure> {
        self.failures.into_iter().map(|(cluster, message)| ClusterFailure { cluster, message })
    }
}

/// The reads that confirm the conclusions of a placement.
pub struct PlacementReads<'a, P> {
    pub client: &'a Client,
    /// The cache.
    pub clusters: &'a Clusters,
    /// As the cache shows it.
    pub placement: &'a P,
}

impl<P> PlacementReads<'_, P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    /// Returns whether the placement still has the spec that the cache shows, and is neither paused nor being deleted.
    pub async fn is_current(&self) -> Result<bool, ManagementError> {
        let read = found(status::api(self.client, self.placement).get(&self.placement.name_any()).await);
        let read = read.map_err(|source| ManagementError::Read { what: self.named(), source })?;
        Ok(read.is_some_and(|read| {
            read.uid() == self.placement.uid()
                && read.meta().generation == self.placement.meta().generation
                && read.meta().deletion_timestamp.is_none()
                && !status::is_paused(&read)
        }))
    }

    /// Returns the release objects of the placement that are not among the `cached` ones. Those that cannot be decoded are left out:
    /// the watch skips them, too, so that they would never be cached.
    pub async fn uncached_releases(
        &self,
        cached: &[Arc<P::Release>],
    ) -> Result<Vec<P::Release>, ManagementError> {
        let namespace = self.placement.namespace().unwrap_or_default();
        let resource = ApiResource::erase::<P::Release>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let owner = naming::label_value(&self.placement.name_any());
        let of_owner = ListParams::default().labels(&format!("{}={owner}", P::OWNER_LABEL));
        let cannot_list = |source| {
            let what = format!("the {}s of {}", status::kind::<P::Release>(), self.named());
            ManagementError::Read { what, source }
        };
        let cached: BTreeSet<_> = cached.iter().map(|release| release.name_any()).collect();
        let names = found(api.list_metadata(&of_owner).await).map_err(cannot_list)?;
        if names.into_iter().flatten().all(|listed| cached.contains(&listed.name_any())) {
            return Ok(Vec::new());
        }
        let listed = found(api.list(&of_owner).await).map_err(cannot_list)?.into_iter().flatten();
        let uncached = listed.filter(|listed| !cached.contains(&listed.name_any()));
        Ok(uncached.filter_map(|listed| listed.try_parse().ok()).collect())
    }

    /// Returns for which of these Clusters, as the cache shows them, the placement must not create a release object again.
    pub async fn unconfirmed_creations(&self, clusters: &ClusterMap<Arc<DynamicObject>>) -> Unconfirmed {
        let keys = clusters.keys().cloned().collect();
        self.unconfirmed(keys, |key, read| {
            let (Some(cached), Some(read)) = (clusters.get(key), read) else { return false };
            clusters::is_current(cached, read) && self.placement.selects(key, read.labels())
        })
        .await
    }

    /// Returns for which Clusters the placement must not delete release objects.
    pub async fn unconfirmed_deletions(&self, changes: &[Change<P::Release>]) -> Unconfirmed {
        let (mut unselected, mut replaced) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Unselect(release) => unselected.extend(P::cluster_of(release)),
                Change::Delete(release) => replaced.extend(P::cluster_of(release)),
                Change::Apply(_) => {}
            }
        }
        let mut unconfirmed = self
            .unconfirmed(unselected, |key, read| {
                // Policies treat a Cluster that is gone and one that is not selected differently.
                read.is_some() == self.clusters.get(key).is_some()
                    && read.is_none_or(|read| !self.placement.selects(key, read.labels()))
            })
            .await;
        let not_replaced =
            self.unconfirmed(replaced, |key, read| read.is_some_and(|read| self.may_place(key, read))).await;
        unconfirmed.outdated.extend(not_replaced.outdated);
        unconfirmed.failures.extend(not_replaced.failures);
        unconfirmed
    }

    /// Reads Clusters. Returns those for which `is_confirmed` does not hold.
    async fn unconfirmed(
        &self,
        clusters: BTreeSet<ClusterKey>,
        is_confirmed: impl Fn(&ClusterKey, Option<&DynamicObject>) -> bool,
    ) -> Unconfirmed {
        let mut unconfirmed = Unconfirmed::default();
        for (key, read) in self.read(clusters).await {
            match read {
                Ok(read) if is_confirmed(&key, read.as_ref()) => {}
                Ok(_) => drop(unconfirmed.outdated.insert(key)),
                Err(message) => drop(unconfirmed.failures.insert(key, message)),
            }
        }
        unconfirmed
    }

    /// Reads Clusters of the placement's namespace.
    async fn read(
        &self,
        keys: BTreeSet<ClusterKey>,
    ) -> Vec<(ClusterKey, Result<Option<DynamicObject>, String>)> {
        if keys.len() > MANY_READS {
            let namespace = self.placement.namespace().unwrap_or_default();
            let listed = clusters::list(self.client, &namespace).await.map_err(|error| error.to_string());
            let listed = listed.map(|listed| -> ClusterMap<DynamicObject> {
                listed.into_iter().filter_map(|read| Some((clusters::key(&read)?, read))).collect()
            });
            let of_key = |key: &ClusterKey| match &listed {
                Ok(listed) => Ok(listed.get(key).cloned()),
                Err(message) => Err(message.clone()),
            };
            return keys.into_iter().map(|key| (key.clone(), of_key(&key))).collect();
        }
        let reads: Vec<_> = keys
            .into_iter()
            .map(|key| async move {
                let read = clusters::read(self.client, &key).await.map_err(|error| error.to_string());
                (key, read)
            })
            .collect();
        stream::iter(reads).buffer_unordered(READS).collect().await
    }

    /// Returns whether the placement selects a Cluster, and may change its release object.
    fn may_place(&self, key: &ClusterKey, cluster: &DynamicObject) -> bool {
        self.placement.selects(key, cluster.labels()) && !clusters::is_paused_or_deleting(cluster)
    }

    fn named(&self) -> String {
        let (name, namespace) = (self.placement.name_any(), self.placement.namespace().unwrap_or_default());
        format!("{} {namespace}/{name}", status::kind::<P>())
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clusters::tests::{PATH, cached, cluster},
        fake_api_server::FakeApiServer,
    };

    const PLACEMENT: &str = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/fleet/helmchartproxies/hello";
    const RELEASES: &str = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/fleet/helmreleaseproxies";

    fn placement() -> Value {
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": "fleet", "uid": "1", "generation": 1},
            "spec": {
                "clusterSelector": {"matchLabels": {"hello": "yes"}}, "chartName": "hello",
                "repoURL": "https://charts.example",
            },
        })
    }

    fn release() -> HelmReleaseProxy {
        serde_json::from_value(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {
                "name": "hello-blue", "namespace": "fleet", "labels": {HelmChartProxy::OWNER_LABEL: "hello"},
            },
            "spec": {
                "chartName": "hello", "repoURL": "https://charts.example", "releaseName": "hello",
                "namespace": "hello", "clusterRef": {"kind": "Cluster", "name": "blue", "namespace": "fleet"},
            },
        }))
        .unwrap()
    }

    /// Returns Cluster `fleet/blue`, which the placement selects.
    fn selected() -> Value {
        with(cluster(), "labels", json!({"hello": "yes"}))
    }

    /// Returns an object with a field of its metadata.
    fn with(mut object: Value, field: &str, value: Value) -> Value {
        object["metadata"][field] = value;
        object
    }

    fn deleting(object: Value) -> Value {
        with(object, "deletionTimestamp", json!("2026-01-01T00:00:00Z"))
    }

    fn paused_cluster() -> Value {
        let mut paused = selected();
        paused["spec"]["paused"] = json!(true);
        paused
    }

    /// Returns an API server with at most one object.
    fn server(path: &str, object: Option<Value>) -> FakeApiServer {
        let server = FakeApiServer::default();
        if let Some(object) = object {
            server.put(path, object);
        }
        server
    }

    /// What the reads of a placement need.
    struct World {
        client: Client,
        clusters: Clusters,
        placement: HelmChartProxy,
    }

    impl World {
        /// Returns a world whose cache contains at most this Cluster.
        fn new(server: &FakeApiServer, in_cache: Option<Value>) -> Self {
            let placement = serde_json::from_value(placement()).unwrap();
            Self { client: server.client(), clusters: cached(in_cache), placement }
        }

        fn reads(&self) -> PlacementReads<'_, HelmChartProxy> {
            let Self { client, clusters, placement } = self;
            PlacementReads { client, clusters, placement }
        }
    }

    fn blue() -> ClusterKey {
        ClusterKey::new("fleet", "blue")
    }

    #[tokio::test]
    async fn a_placement_is_current_if_the_api_server_has_the_same_spec() {
        let annotated = with(placement(), "annotations", json!({"cluster.x-k8s.io/paused": ""}));
        let rows = [
            ("the same", Some(placement()), true),
            ("moved", None, false),
            ("created again", Some(with(placement(), "uid", json!("2"))), false),
            ("changed", Some(with(placement(), "generation", json!(2))), false),
            ("being deleted", Some(deleting(placement())), false),
            ("paused", Some(annotated), false),
        ];
        for (what, stored, expected) in rows {
            let world = World::new(&server(PLACEMENT, stored), None);
            assert_eq!(world.reads().is_current().await.unwrap(), expected, "{what}");
        }
        let unreadable = server(PLACEMENT, Some(placement()));
        unreadable.fail_reads(PLACEMENT);
        World::new(&unreadable, None).reads().is_current().await.unwrap_err();
    }

    #[tokio::test]
    async fn a_release_object_is_created_again_only_for_the_cluster_that_the_cache_shows() {
        let rows = [
            ("the same", Some(selected()), true),
            ("moved", None, false),
            ("created again", Some(with(selected(), "uid", json!("8"))), false),
            ("no longer selected", Some(cluster()), false),
            ("being deleted", Some(deleting(selected())), false),
            ("paused", Some(paused_cluster()), false),
        ];
        let in_cache: DynamicObject = serde_json::from_value(selected()).unwrap();
        let in_cache = ClusterMap::from([(blue(), Arc::new(in_cache))]);
        for (what, stored, expected) in rows {
            let world = World::new(&server(PATH, stored), Some(selected()));
            let unconfirmed = world.reads().unconfirmed_creations(&in_cache).await;
            assert_eq!(!unconfirmed.contains(&blue()), expected, "{what}");
            assert!(unconfirmed.failures.is_empty(), "{what}");
        }
    }

    #[tokio::test]
    async fn a_release_object_is_deleted_only_if_the_api_server_shows_why() {
        // What the cache has, and the API server; whether the release object may be deleted as unselected, and whether it may be
        // deleted to be replaced.
        let rows = [
            ("selected", Some(cluster()), Some(selected()), false, true),
            ("not selected", Some(cluster()), Some(cluster()), true, false),
            ("gone", None, None, true, false),
            ("gone, but cached", Some(cluster()), None, false, false),
            ("selected, but not cached", None, Some(selected()), false, true),
            ("not selected and not cached", None, Some(cluster()), false, false),
            ("paused", Some(selected()), Some(paused_cluster()), false, false),
            ("being deleted", Some(selected()), Some(deleting(selected())), false, false),
        ];
        for (what, in_cache, stored, may_unselect, may_replace) in rows {
            let world = World::new(&server(PATH, stored), in_cache);
            for (change, expected) in [
                (Change::Unselect(Arc::new(release())), may_unselect),
                (Change::Delete(Arc::new(release())), may_replace),
                (Change::Apply(Box::new(release())), true),
            ] {
                let unconfirmed = world.reads().unconfirmed_deletions(std::slice::from_ref(&change)).await;
                assert_eq!(!unconfirmed.contains(&blue()), expected, "{what}: {change:?}");
            }
        }
    }

    #[tokio::test]
    async fn many_clusters_are_read_by_one_list() {
        let server = server(PATH, Some(selected()));
        let world = World::new(&server, Some(selected()));
        let keys = (0..MANY_READS).map(|number| ClusterKey::new("fleet", format!("gone-{number}")));
        let read = world.reads().read(keys.chain([blue()]).collect()).await;
        assert_eq!(server.requests().len(), 1);
        let exists = |read: &Result<Option<DynamicObject>, String>| read.as_ref().unwrap().is_some();
        let existing: Vec<_> = read.iter().filter(|(_, read)| exists(read)).map(|(key, _)| key).collect();
        assert_eq!((read.len(), existing), (MANY_READS + 1, vec![&blue()]));
    }

    #[test]
    fn an_unconfirmed_release_object_is_updated_but_not_created() {
        let unconfirmed = Unconfirmed { outdated: [blue()].into(), ..Unconfirmed::default() };
        let mut existing = release();
        existing.metadata.uid = Some("1".to_owned());
        let rows = [
            (Change::Apply(Box::new(release())), true),
            (Change::Apply(Box::new(existing)), false),
            (Change::Unselect(Arc::new(release())), false),
        ];
        for (change, expected) in rows {
            assert_eq!(unconfirmed.forbids::<HelmChartProxy>(&change), expected, "{change:?}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_confirmed() {
        let unreadable = server(PATH, Some(selected()));
        unreadable.fail_reads(PATH);
        let world = World::new(&unreadable, None);
        let unconfirmed = world.reads().unconfirmed_deletions(&[Change::Unselect(Arc::new(release()))]).await;
        assert!(unconfirmed.contains(&blue()) && unconfirmed.outdated.is_empty());
        assert!(unconfirmed.failures[&blue()].contains("Cluster fleet/blue"), "{unconfirmed:?}");
    }

    #[tokio::test]
    async fn release_objects_that_the_cache_does_not_contain_are_found() {
        let path = format!("{RELEASES}/hello-blue");
        let stored = serde_json::to_value(release()).unwrap();
        let other = with(stored.clone(), "labels", json!({HelmChartProxy::OWNER_LABEL: "other"}));
        let mut undecodable = stored.clone();
        undecodable["spec"] = json!("a later version of the CRD");
        let rows = [
            ("its own", Some(stored), 1),
            ("one of another placement", Some(other), 0),
            ("one that cannot be decoded", Some(undecodable), 0),
            ("none", None, 0),
        ];
        for (what, stored, expected) in rows {
            let world = World::new(&server(&path, stored), None);
            assert_eq!(world.reads().uncached_releases(&[]).await.unwrap().len(), expected, "{what}");
            let cached = world.reads().uncached_releases(&[Arc::new(release())]).await;
            assert!(cached.unwrap().is_empty(), "{what}");
        }
        let unserved = FakeApiServer::default();
        unserved.delete_crds();
        assert!(World::new(&unserved, None).reads().uncached_releases(&[]).await.unwrap().is_empty());
    }
}
