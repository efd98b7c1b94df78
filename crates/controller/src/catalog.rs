//! Catalogs: what their sources offer is read at their interval and kept in the store; the object tells how that went.

mod access;
mod handle;
mod news;
mod pass;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use chandler_api::{capi::WATCH_FILTER_LABEL, extensions::ExtensionCatalog};
use chandler_core::catalog::LastLook;
use chandler_source::Packages;
use kube::{
    Client, ResourceExt as _,
    api::ApiResource,
    runtime::reflector::{ObjectRef, Store},
};

use self::news::News;
pub use self::{access::catalog_access, handle::Catalogs};
use crate::{
    events::Events,
    queue::{self, Trigger},
    watch::{Scope, watch},
};

struct CatalogContext {
    client: Client,
    packages: Arc<Packages>,
    events: Events,
    catalogs: OnceLock<Store<ExtensionCatalog>>,
    news: News,
    /// By uid.
    looks: Mutex<HashMap<String, LastLook>>,
}

impl CatalogContext {
    fn looks(&self) -> MutexGuard<'_, HashMap<String, LastLook>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touched(&self, catalog: &ExtensionCatalog) {
        // Objects that go before the store is known are none that anything was read for.
        let Some(catalogs) = self.catalogs.get() else { return };
        let there = catalogs.get(&ObjectRef::from_obj(catalog)).and_then(|there| there.uid());
        let is_there = there == catalog.uid();
        self.news.touched(catalog, is_there);
        if let Some(uid) = catalog.uid().filter(|_| !is_there) {
            // What was read for a catalog goes with it.
            self.looks().remove(&uid);
            self.packages.forget_catalog(&uid);
        }
    }
}

/// Watches all catalogs of the scope. The future looks after them for as long as it is polled.
pub fn start(
    client: Client,
    scope: &Scope,
    watch_filter: Option<&str>,
    packages: Arc<Packages>,
    events: Events,
) -> (Catalogs, impl Future<Output = ()> + Send + use<>) {
    let (trigger, queue) = Trigger::<ExtensionCatalog>::new();
    let context = Arc::new(CatalogContext {
        client: client.clone(),
        packages: packages.clone(),
        events,
        catalogs: OnceLock::new(),
        news: News::default(),
        looks: Mutex::default(),
    });
    let labels = watch_filter.map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scope = Scope { labels, ..scope.clone() };
    let resource = ApiResource::erase::<ExtensionCatalog>(&());
    let touching = context.clone();
    let watched = watch(client, &scope, &resource, (), move |catalog: &ExtensionCatalog| {
        touching.touched(catalog);
        trigger.look_at(ObjectRef::from_obj(catalog));
    });
    let _ = context.catalogs.set(watched.store.clone());
    let catalogs = Catalogs::new(watched.store.clone(), packages, context.news.sender());
    (catalogs, queue::run(watched.store, queue, context, pass::reconcile))
}
