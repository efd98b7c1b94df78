//! Catalogs: what their sources offer is read at their interval and kept in the store; the object tells how that went.

mod access;
mod handle;
mod news;
mod pass;
mod signers;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use chandler_api::{
    capi::WATCH_FILTER_LABEL,
    extensions::{CatalogStatus, ExtensionCatalog},
};
use chandler_core::{catalog::LastLook, conditions};
use chandler_source::Packages;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Client, ResourceExt as _,
    api::ApiResource,
    runtime::reflector::{ObjectRef, Store},
};

use self::news::News;
pub use self::{access::catalog_access, handle::Catalogs, signers::catalog_signers};
use crate::{
    events::Events,
    metrics::Metrics,
    queue::{self, Trigger},
    sync::{Mutex, MutexGuard},
    watch::{Scope, watch},
};

const KIND: &str = "ExtensionCatalog";

struct CatalogContext {
    client: Client,
    packages: Arc<Packages>,
    events: Events,
    catalogs: OnceLock<Store<ExtensionCatalog>>,
    news: Arc<News>,
    /// By uid.
    looks: Mutex<HashMap<String, LastLook>>,
}

impl CatalogContext {
    fn looks(&self) -> MutexGuard<'_, HashMap<String, LastLook>> {
        self.looks.lock()
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

/// What looks after catalogs.
pub struct CatalogOptions {
    pub client: Client,
    pub scope: Scope,
    /// The namespace whose catalogs are everyone's, also of who looks after one namespace only.
    pub platform: String,
    pub watch_filter: Option<String>,
    pub packages: Arc<Packages>,
    pub events: Events,
    pub metrics: Metrics,
}

/// Watches all catalogs of the scope and of the platform. The future looks after them for as long as it is polled.
pub fn start(options: CatalogOptions) -> (Catalogs, impl Future<Output = ()> + Send + use<>) {
    let CatalogOptions { client, scope, platform, watch_filter, packages, events, metrics } = options;
    let news = Arc::new(News::default());
    let labels = watch_filter.map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scopes = Scope { labels, ..scope }.and_platform(&platform);
    let (stores, work): (Vec<_>, Vec<_>) = scopes
        .into_iter()
        .map(|scope| {
            let context = Arc::new(CatalogContext {
                client: client.clone(),
                packages: packages.clone(),
                events: events.clone(),
                catalogs: OnceLock::new(),
                news: news.clone(),
                looks: Mutex::default(),
            });
            look_after(&scope, context, &metrics)
        })
        .unzip();
    let catalogs = Catalogs::new(stores, packages, news.sender());
    (catalogs, async move {
        join_all(work).await;
    })
}

fn look_after(
    scope: &Scope,
    context: Arc<CatalogContext>,
    metrics: &Metrics,
) -> (Store<ExtensionCatalog>, impl Future<Output = ()> + Send + use<>) {
    let (trigger, queue) = Trigger::<ExtensionCatalog>::new(KIND, metrics);
    let resource = ApiResource::erase::<ExtensionCatalog>(&());
    let touching = context.clone();
    let watched = watch(context.client.clone(), scope, &resource, (), move |catalog: &ExtensionCatalog| {
        touching.touched(catalog);
        trigger.look_at(ObjectRef::from_obj(catalog));
    });
    let _ = context.catalogs.set(watched.store.clone());
    let store = watched.store;
    (store.clone(), queue::run(KIND, store, queue, metrics.clone(), context, pass::reconcile))
}

fn ready(status: &CatalogStatus) -> Option<&Condition> {
    conditions::find(&status.conditions, "Ready")
}
