//! The controllers of Sources. They poll repositories, fetch and verify revisions, store their files, and report them in the
//! status. Deleting a Source removes only the stored files.

mod fetch;
mod handle;
mod packages;
mod receiver;
mod reconciler;
mod refused;
mod requests;
mod revision;
mod tags;
#[cfg(test)]
pub mod testing;

use std::{collections::HashMap, sync::Arc, time::Duration};

use chandler_api::extensions::{Source, SourceStatus};
use chandler_core::{conditions, poll::LastPoll};
use chandler_source::Packages;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, ResourceExt as _, api::ApiResource};
use tokio::sync::watch as channel;

pub use self::{
    fetch::fetch_source,
    handle::{CurrentSource, Sources},
    packages::{Folder, SourcePackages, about as about_folder},
    receiver::{ReceiverOptions, ReceiverService, start as start_receiver},
};
use self::{
    refused::RefusedRevisions,
    requests::{EndedPolls, PollRequests},
    tags::KnownTags,
};
use crate::{
    events::Events,
    locks::{Mutex, MutexGuard},
    metrics::Metrics,
    queue,
    routing::ScopedQueue,
    run::Shared,
    scoped::Scoped,
    tasks::Tasks,
    tenancies::Tenancies,
    watch::{Change, Scope, watch},
};

const KIND: &str = "Source";

struct SourceContext {
    client: Client,
    packages: Arc<Packages>,
    events: Events,
    /// Counts fetched revisions, changes of tags, and deleted Sources.
    changes: channel::Sender<u64>,
    /// By uid.
    polls: Mutex<HashMap<String, LastPoll>>,
    tags: KnownTags,
    refused: RefusedRevisions,
    requests: Arc<PollRequests>,
    ended_polls: Arc<EndedPolls>,
    /// Shorter intervals of Sources are treated like this one.
    min_interval: Duration,
    tenancies: Tenancies,
}

impl SourceContext {
    fn polls(&self) -> MutexGuard<'_, HashMap<String, LastPoll>> {
        self.polls.lock()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn on_change(&self, change: &Change<'_, Source>) {
        if let Change::Deleted(source) = change {
            let uid = source.uid().unwrap_or_default();
            self.polls().remove(&uid);
            self.tags.forget(&uid);
            self.requests.take(&uid);
            self.ended_polls.forget(&uid);
            self.packages.remove_tree(&uid);
            self.changed();
        }
    }
}

/// The controllers of Sources, one per scope.
pub struct SourceControllers {
    scopes: Vec<Scoped<Source>>,
    changes: channel::Sender<u64>,
}

impl SourceControllers {
    pub fn new(scopes: Vec<Scope>, metrics: &Metrics) -> (Self, Vec<ScopedQueue<Source>>) {
        let (scopes, queues) = Scoped::all(scopes, metrics);
        (Self { scopes, changes: channel::Sender::default() }, queues)
    }

    /// Watches Sources and reconciles them. Returns the interface for other controllers. `platform` is the namespace whose
    /// Sources are available to all namespaces.
    pub fn start(self, tasks: &mut Tasks, shared: &Shared, platform: &str) -> Sources {
        let stores = self.scopes.iter().map(|scoped| scoped.store.clone()).collect();
        let (client, packages) = (shared.client.clone(), shared.packages.clone());
        let sources = Sources::new(client, stores, packages, platform, self.changes.clone())
            .with_min_interval(shared.source_min_interval)
            .with_router(shared.router.clone())
            .under(shared.tenancies.clone());
        for Scoped { scope, store, writer, queue } in self.scopes {
            let context = Arc::new(SourceContext {
                client: shared.client.clone(),
                packages: shared.packages.clone(),
                events: shared.events.clone(),
                changes: self.changes.clone(),
                polls: Mutex::default(),
                tags: KnownTags::default(),
                refused: RefusedRevisions::default(),
                requests: sources.requests.clone(),
                ended_polls: sources.ended_polls.clone(),
                min_interval: shared.source_min_interval,
                tenancies: shared.tenancies.clone(),
            });
            let (router, watching) = (shared.router.clone(), context.clone());
            let resource = ApiResource::erase::<Source>(&());
            watch(shared.client.clone(), &scope, &resource, writer, move |change| {
                watching.on_change(change);
                router.on_source_object(change);
            });
            let (retried, router) = (context.clone(), shared.router.clone());
            let stores = vec![store.clone()];
            tasks.spawn(shared.tenancies.clone().retry_refused(
                stores,
                conditions_of,
                move |source: &Source| {
                    retried.polls().remove(&source.uid().unwrap_or_default());
                    router.enqueue_source(source);
                },
            ));
            let metrics = shared.metrics.clone();
            tasks.spawn(queue::run(KIND, (), store, queue, metrics, context, reconciler::reconcile));
        }
        sources
    }
}

fn conditions_of(source: &Source) -> &[Condition] {
    source.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn ready(status: &SourceStatus) -> Option<&Condition> {
    conditions::find(&status.conditions, "Ready")
}
