//! Release objects as the API server returned them on our last write. They are newer than the watch until it has caught
//! up; without them a placement would write the same thing twice.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::sync::{Mutex, MutexGuard};

/// How long our own word counts for more than the watch.
pub const CATCH_UP: Duration = Duration::from_secs(10);

type Entries<R> = HashMap<String, (Instant, Arc<R>)>;

/// By placement and name.
pub struct Written<P: kube::Resource<DynamicType = ()>, R>(Mutex<HashMap<ObjectRef<P>, Entries<R>>>);

impl<P: kube::Resource<DynamicType = ()>, R> Default for Written<P, R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: kube::Resource<DynamicType = ()>, R: ResourceExt> Written<P, R> {
    /// Remembers what a write returned.
    pub fn note(&self, placement: &ObjectRef<P>, object: R) {
        let name = object.name_any();
        self.lock().entry(placement.clone()).or_default().insert(name, (Instant::now(), Arc::new(object)));
    }

    /// What the watch has `listed`, brought up to date with what it has not told yet. Says whether it lacks objects.
    pub fn over(&self, placement: &ObjectRef<P>, mut listed: Vec<Arc<R>>) -> (Vec<Arc<R>>, bool) {
        let mut all = self.lock();
        let Some(entries) = all.get_mut(placement) else { return (listed, false) };
        for object in &mut listed {
            if let Some((_, ours)) = entries.get(&object.name_any()) {
                if is_newer(&**ours, &**object) {
                    *object = ours.clone();
                } else {
                    entries.remove(&object.name_any());
                }
            }
        }
        entries.retain(|_, (at, _)| at.elapsed() < CATCH_UP);
        let names: HashSet<_> = listed.iter().filter_map(|object| object.meta().name.as_deref()).collect();
        let unlisted: Vec<_> = entries
            .iter()
            .filter(|(name, _)| !names.contains(name.as_str()))
            .map(|(_, (_, ours))| ours.clone())
            .collect();
        let lacks = !unlisted.is_empty();
        listed.extend(unlisted);
        if entries.is_empty() {
            all.remove(placement);
        }
        (listed, lacks)
    }

    /// Forgets an object that is gone.
    pub fn gone(&self, placement: &ObjectRef<P>, name: &str) {
        if let Some(entries) = self.lock().get_mut(placement) {
            entries.remove(name);
        }
    }

    /// Forgets a placement that is gone.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.lock().remove(placement);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<P>, Entries<R>>> {
        self.0.lock()
    }
}

fn is_newer<R: ResourceExt>(ours: &R, listed: &R) -> bool {
    ours.uid() == listed.uid()
        && listed.meta().deletion_timestamp.is_none()
        && ours.meta().generation > listed.meta().generation
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

    fn seen(
        written: &Written<HelmChartProxy, ConfigMap>,
        listed: Vec<Arc<ConfigMap>>,
    ) -> (Vec<(String, Option<i64>)>, bool) {
        let (objects, lacks) = written.over(&ObjectRef::new("hello"), listed);
        (objects.iter().map(|object| (object.name_any(), object.metadata.generation)).collect(), lacks)
    }

    #[test]
    fn our_word_counts_until_the_watch_has_caught_up() {
        let written = Written::default();
        let placement = ObjectRef::new("hello");
        written.note(&placement, (*object("a", "1", 2)).clone());
        written.note(&placement, (*object("b", "2", 1)).clone());
        let both = vec![("a".to_owned(), Some(2)), ("b".to_owned(), Some(1))];
        assert_eq!(seen(&written, vec![object("a", "1", 1)]), (both.clone(), true));
        assert_eq!(seen(&written, vec![object("a", "1", 2), object("b", "2", 1)]), (both, false));
        assert_eq!(seen(&written, vec![]), (vec![], false), "from now on the watch is believed again");
    }

    #[test]
    fn an_object_made_anew_is_not_mistaken_for_ours() {
        let written = Written::default();
        written.note(&ObjectRef::new("hello"), (*object("a", "1", 5)).clone());
        assert_eq!(seen(&written, vec![object("a", "2", 1)]), (vec![("a".to_owned(), Some(1))], false));
    }
}
