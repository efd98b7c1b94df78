//! Release objects by what they belong to, so that an event costs what it concerns, not what the fleet holds.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Arc, OnceLock},
};

use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    release::ReleaseFace,
};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

use crate::sync::{Mutex, MutexGuard};

type References<R> = HashSet<ObjectRef<R>>;

/// The release objects of one kind. Clones share.
pub struct ReleaseIndex<R: ReleaseFace> {
    /// Label that names an object's owner.
    owner_label: &'static str,
    tables: Arc<Mutex<Tables<R>>>,
    store: Arc<OnceLock<Store<R>>>,
}

impl<R: ReleaseFace> Clone for ReleaseIndex<R> {
    fn clone(&self) -> Self {
        Self { owner_label: self.owner_label, tables: self.tables.clone(), store: self.store.clone() }
    }
}

struct Tables<R: ReleaseFace> {
    /// By namespace and owner label.
    owners: HashMap<(String, String), References<R>>,
    clusters: HashMap<ClusterKey, References<R>>,
    releases: HashMap<(ClusterKey, ReleaseId), References<R>>,
}

impl<R: ReleaseFace> ReleaseIndex<R> {
    pub fn new(owner_label: &'static str) -> Self {
        let tables = Tables { owners: HashMap::new(), clusters: HashMap::new(), releases: HashMap::new() };
        Self { owner_label, tables: Arc::new(Mutex::new(tables)), store: Arc::default() }
    }

    /// Says where the objects are.
    pub fn attach(&self, store: Store<R>) {
        // Set once, when the watch begins.
        let _ = self.store.set(store);
    }

    /// Takes in an object that was added or changed. Those that are gone are noticed when they are looked up.
    pub fn note(&self, object: &R) {
        let reference = ObjectRef::from_obj(object);
        let mut tables = self.lock();
        if let (Some(namespace), Some(owner)) = (object.namespace(), object.labels().get(self.owner_label)) {
            tables.owners.entry((namespace, owner.clone())).or_default().insert(reference.clone());
        }
        if let Ok(desired) = object.desired() {
            tables.clusters.entry(desired.cluster.clone()).or_default().insert(reference.clone());
            tables.releases.entry((desired.cluster, desired.release)).or_default().insert(reference);
        }
    }

    /// Whether the object is there no more; another of its name is another object.
    pub fn is_gone(&self, object: &R) -> bool {
        let Some(store) = self.store.get() else { return false };
        store.get(&ObjectRef::from_obj(object)).is_none_or(|there| there.uid() != object.uid())
    }

    /// Those of a placement, by namespace and label.
    pub fn of_owner(&self, namespace: &str, owner: &str) -> Vec<Arc<R>> {
        let key = (namespace.to_owned(), owner.to_owned());
        let found = self.look_up(|tables| &mut tables.owners, &key);
        found
            .into_iter()
            .filter(|object| object.labels().get(self.owner_label).is_some_and(|l| l == owner))
            .collect()
    }

    /// Those on a cluster.
    pub fn on_cluster(&self, cluster: &ClusterKey) -> Vec<Arc<R>> {
        let found = self.look_up(|tables| &mut tables.clusters, cluster);
        found
            .into_iter()
            .filter(|object| object.desired().is_ok_and(|desired| desired.cluster == *cluster))
            .collect()
    }

    /// Those that claim a release on a cluster: more than one is a collision.
    pub fn claiming(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Arc<R>> {
        let found = self.look_up(|tables| &mut tables.releases, &(cluster.clone(), release.clone()));
        let claims = |object: &R| {
            object.desired().is_ok_and(|desired| desired.cluster == *cluster && desired.release == *release)
        };
        found.into_iter().filter(|object| claims(object)).collect()
    }

    fn look_up<K: Eq + Hash>(
        &self,
        table: impl Fn(&mut Tables<R>) -> &mut HashMap<K, References<R>>,
        key: &K,
    ) -> Vec<Arc<R>> {
        let Some(store) = self.store.get() else { return Vec::new() };
        let mut tables = self.lock();
        let table = table(&mut tables);
        let Some(references) = table.get_mut(key) else { return Vec::new() };
        let mut found = Vec::with_capacity(references.len());
        references.retain(|reference| match store.get(reference) {
            Some(object) => {
                found.push(object);
                true
            }
            None => false,
        });
        if references.is_empty() {
            table.remove(key);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, Tables<R>> {
        self.tables.lock()
    }
}
