//! Caches the release objects that the API server returned for recent writes, until the watch shows them. Without this
//! a placement would write the same object twice.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::locks::{Mutex, MutexGuard};

/// How long a written object takes precedence over the watch.
pub const CATCH_UP: Duration = Duration::from_secs(10);

type Entries<R> = HashMap<String, (Instant, Arc<R>)>;

/// Recently written objects, by placement and name.
pub struct RecentWrites<P: kube::Resource<DynamicType = ()>, R>(Mutex<HashMap<ObjectRef<P>, Entries<R>>>);

impl<P: kube::Resource<DynamicType = ()>, R> Default for RecentWrites<P, R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: kube::Resource<DynamicType = ()>, R: ResourceExt> RecentWrites<P, R> {
    /// Records the result of a write.
    pub fn record(&self, placement: &ObjectRef<P>, object: R) {
        let name = object.name_any();
        self.lock().entry(placement.clone()).or_default().insert(name, (Instant::now(), Arc::new(object)));
    }

    /// Returns the objects that the watch has `listed`, updated by recent writes and completed by those that `is_in_scope`
    /// accepts, and the objects that were added.
    pub fn overlay(
        &self,
        placement: &ObjectRef<P>,
        mut listed: Vec<Arc<R>>,
        is_in_scope: impl Fn(&R) -> bool,
    ) -> (Vec<Arc<R>>, Vec<Arc<R>>) {
        let mut all = self.lock();
        let Some(entries) = all.get_mut(placement) else { return (listed, Vec::new()) };
        for object in &mut listed {
            if let Some((_, written)) = entries.get(&object.name_any()) {
                if is_newer(&**written, &**object) {
                    *object = written.clone();
                } else {
                    entries.remove(&object.name_any());
                }
            }
        }
        entries.retain(|_, (at, _)| at.elapsed() < CATCH_UP);
        let names: HashSet<_> = listed.iter().filter_map(|object| object.meta().name.as_deref()).collect();
        let unlisted: Vec<_> = entries
            .iter()
            .filter(|(name, (_, written))| !names.contains(name.as_str()) && is_in_scope(written))
            .map(|(_, (_, written))| written.clone())
            .collect();
        listed.extend(unlisted.iter().cloned());
        if entries.is_empty() {
            all.remove(placement);
        }
        (listed, unlisted)
    }

    /// Returns whether a newer version of an object was written than the one that the watch has shown.
    pub fn is_outdated(&self, placement: &ObjectRef<P>, listed: &R) -> bool {
        let all = self.lock();
        let written = all.get(placement).and_then(|entries| entries.get(&listed.name_any()));
        written.is_some_and(|(at, written)| at.elapsed() < CATCH_UP && is_newer(&**written, listed))
    }

    /// Removes a deleted object.
    pub fn remove(&self, placement: &ObjectRef<P>, name: &str) {
        if let Some(entries) = self.lock().get_mut(placement) {
            entries.remove(name);
        }
    }

    /// Removes a deleted placement.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.lock().remove(placement);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<P>, Entries<R>>> {
        self.0.lock()
    }
}

fn is_newer<R: ResourceExt>(written: &R, listed: &R) -> bool {
    written.uid() == listed.uid()
        && listed.meta().deletion_timestamp.is_none()
        && written.meta().generation > listed.meta().generation
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmChartProxy;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, uid: &str, generation: i64) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.generation = Some(generation);
        Arc::new(object)
    }

    fn overlay(
        writes: &RecentWrites<HelmChartProxy, ConfigMap>,
        listed: Vec<Arc<ConfigMap>>,
    ) -> (Vec<(String, Option<i64>)>, bool) {
        let (objects, added) = writes.overlay(&ObjectRef::new("hello"), listed, |_| true);
        let objects = objects.iter().map(|object| (object.name_any(), object.metadata.generation)).collect();
        (objects, !added.is_empty())
    }

    #[test]
    fn writes_take_precedence_until_the_watch_shows_them() {
        let writes = RecentWrites::default();
        let placement = ObjectRef::new("hello");
        writes.record(&placement, (*object("a", "1", 2)).clone());
        writes.record(&placement, (*object("b", "2", 1)).clone());
        let both = vec![("a".to_owned(), Some(2)), ("b".to_owned(), Some(1))];
        assert_eq!(overlay(&writes, vec![object("a", "1", 1)]), (both.clone(), true));
        assert_eq!(overlay(&writes, vec![object("a", "1", 2), object("b", "2", 1)]), (both, false));
        assert_eq!(overlay(&writes, vec![]), (vec![], false), "from now on the watch takes precedence");
    }

    #[test]
    fn writes_outside_of_the_scope_are_not_added() {
        let writes = RecentWrites::default();
        let placement: ObjectRef<HelmChartProxy> = ObjectRef::new("hello");
        writes.record(&placement, (*object("a", "1", 1)).clone());
        writes.record(&placement, (*object("b", "2", 1)).clone());
        let (objects, added) = writes.overlay(&placement, vec![], |object| object.name_any() == "b");
        assert_eq!((objects.len(), added.len(), added[0].name_any()), (1, 1, "b".to_owned()));
        assert_eq!(overlay(&writes, vec![]).0.len(), 2, "they are kept for other reconciles");
    }

    #[test]
    fn a_recreated_object_is_not_replaced() {
        let writes = RecentWrites::default();
        writes.record(&ObjectRef::new("hello"), (*object("a", "1", 5)).clone());
        assert_eq!(overlay(&writes, vec![object("a", "2", 1)]), (vec![("a".to_owned(), Some(1))], false));
    }
}
