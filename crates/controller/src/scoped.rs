//! Stores and queues of a kind that is watched in several scopes: the manager's own namespace and that of the platform.

use std::{fmt::Debug, hash::Hash};

use kube::{
    Resource,
    runtime::reflector::{Store, store::Writer},
};

use crate::{
    metrics::Metrics,
    queue::{Queue, Trigger},
    routing::ScopedQueue,
    status,
    watch::Scope,
};

/// The store and queue of one scope.
pub struct Scoped<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    pub scope: Scope,
    pub store: Store<K>,
    pub writer: Writer<K>,
    pub queue: Queue<K>,
}

impl<K> Scoped<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Hash + Eq,
{
    /// Creates an empty store and a queue for each scope.
    pub fn all(scopes: Vec<Scope>, metrics: &Metrics) -> (Vec<Self>, Vec<ScopedQueue<K>>) {
        let one = |scope: Scope| {
            let writer = Writer::new(());
            let (trigger, queue) = Trigger::new(status::kind::<K>(), metrics);
            let enqueue = ScopedQueue { namespace: scope.namespace.clone(), queue: trigger };
            (Self { scope, store: writer.as_reader(), writer, queue }, enqueue)
        };
        scopes.into_iter().map(one).unzip()
    }
}
