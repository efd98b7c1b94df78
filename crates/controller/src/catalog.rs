//! Catalogs: what their sources offer is read at their interval and kept in the store; the object tells how that went.

mod access;
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

pub use self::access::catalog_access;
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
    /// By uid.
    looks: Mutex<HashMap<String, LastLook>>,
}

impl CatalogContext {
    fn looks(&self) -> MutexGuard<'_, HashMap<String, LastLook>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read for a catalog goes with it.
    fn forget_if_gone(&self, catalog: &ExtensionCatalog) {
        let Some(catalogs) = self.catalogs.get() else { return };
        let there = catalogs.get(&ObjectRef::from_obj(catalog)).and_then(|there| there.uid());
        if let Some(uid) = catalog.uid().filter(|uid| there.as_ref() != Some(uid)) {
            self.looks().remove(&uid);
            self.packages.forget_catalog(&uid);
        }
    }
}

/// Looks after all catalogs of the scope.
pub async fn run(
    client: Client,
    scope: &Scope,
    watch_filter: Option<&str>,
    packages: Arc<Packages>,
    events: Events,
) {
    let (trigger, queue) = Trigger::<ExtensionCatalog>::new();
    let context = Arc::new(CatalogContext {
        client: client.clone(),
        packages,
        events,
        catalogs: OnceLock::new(),
        looks: Mutex::default(),
    });
    let labels = watch_filter.map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scope = Scope { labels, ..scope.clone() };
    let resource = ApiResource::erase::<ExtensionCatalog>(&());
    let touching = context.clone();
    let watched = watch(client, &scope, &resource, (), move |catalog: &ExtensionCatalog| {
        touching.forget_if_gone(catalog);
        trigger.look_at(ObjectRef::from_obj(catalog));
    });
    // Objects that go before this are none that anything was read for.
    let _ = context.catalogs.set(watched.store.clone());
    queue::run(watched.store, queue, context, pass::reconcile).await;
}
