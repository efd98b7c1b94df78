//! The watch that keeps the inventory of one cluster: the metadata of a tool's release records, never their content.
//!
//! It is a list and a watch like kube's `watcher`, but every answer has a deadline, and a cluster that sends nothing is
//! asked whether it still answers.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    time::Duration,
};

use chandler_core::{
    failure::{Category, Failure},
    identity::ReleaseId,
    inventory::{PendingRecords, ReleaseInventory, ReleaseRecords, Sighting, StoredRevision},
    reachability::{ANSWER_TIMEOUT, probe_at},
};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams},
    core::{GroupVersionKind, PartialObjectMeta},
};
use tokio::{sync::Notify, time::Instant};

use crate::{probe::Probe, reach::failure_of};

/// How often a cluster that does not serve the kind of the records is asked again.
const NOT_SERVED_RETRY: Duration = Duration::from_mins(1);
/// Number of records in one response of a list.
const PAGE: u32 = 500;
/// Maximum number of records of a cluster, and of bytes of a name or version in them. Those of API servers are shorter.
const MAX_RECORDS: usize = 100_000;
const MAX_NAME: usize = 253;
/// After so many seconds the API server ends a watch, which is then continued.
const WATCH_SECONDS: u32 = 290;
/// Pause before a watch that ended is continued, so that a server that ends watches at once is not flooded.
const CONTINUE_PAUSE: Duration = Duration::from_millis(500);
/// How long one request may take that asks whether the cluster answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(7);
/// Pause after such a request that has failed at once.
const PROBE_PAUSE: Duration = Duration::from_secs(2);

/// The times at which clusters are asked count from here, so that they are common.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

type Record = PartialObjectMeta<DynamicObject>;
type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Record>>> + Send>>;

/// Returns the kind of a tool's records.
pub fn resource(records: &ReleaseRecords) -> Result<ApiResource, Failure> {
    let types = TypeMeta { api_version: records.api_version.clone(), kind: records.kind.clone() };
    let kind = GroupVersionKind::try_from(types).map_err(|error| {
        Failure::new(
            Category::Internal,
            format!("the package tool breaks the contract: its records are of no valid kind: {error}"),
        )
    })?;
    Ok(ApiResource::from_gvk_with_plural(&kind, &records.plural))
}

/// Why a watch has ended.
#[derive(Debug)]
pub enum WatchEnd {
    /// The records have to be listed again, because that was asked for.
    ListAgain,
    /// The records have to be listed again, because the API server does not have all changes since the last event.
    Expired,
    Broken {
        failure: Failure,
        /// When the cluster answered last, if it has stopped answering.
        silent_since: Option<Instant>,
    },
}

/// The records of a tool on a cluster, listed and watched.
pub struct InventoryWatch {
    probe: Probe,
    api: Api<DynamicObject>,
    records: Arc<ReleaseRecords>,
    inventory: Arc<ReleaseInventory>,
    /// `None` means that the cluster does not serve the kind of the records.
    events: Option<Events>,
    version: String,
    last_answer: Instant,
}

impl InventoryWatch {
    /// Lists the records and opens the watch. `probe` asks the cluster whenever the watch sends nothing. `pending` is what the
    /// last watch has seen.
    pub async fn open(
        client: Client,
        probe: Probe,
        records: Arc<ReleaseRecords>,
        pending: PendingRecords,
    ) -> Result<Self, Failure> {
        let api: Api<DynamicObject> = Api::all_with(client, &resource(&records)?);
        let mut watch = Self {
            probe,
            api,
            records,
            inventory: Arc::default(),
            events: None,
            version: String::new(),
            last_answer: Instant::now(),
        };
        // A cluster that does not serve the kind has no record of it.
        if watch.list(pending).await? {
            watch.events = Some(watch.open_watch().await?);
        }
        watch.last_answer = Instant::now();
        Ok(watch)
    }

    /// Returns the version of the list, or of the last event.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn inventory(&self) -> Arc<ReleaseInventory> {
        self.inventory.clone()
    }

    /// Lists all records. Returns `false` if the cluster does not serve their kind.
    async fn list(&mut self, pending: PendingRecords) -> Result<bool, Failure> {
        let mut inventory = ReleaseInventory::with_pending(pending);
        let mut listed = 0_usize;
        let mut params = ListParams::default().labels(&self.records.label_selector).limit(PAGE);
        loop {
            let page = match self.api.list_metadata(&params).await {
                Ok(page) => page,
                // Every API server serves the core kinds: a 404 for them is the answer of something else.
                Err(kube::Error::Api(status)) if status.code == 404 && self.has_api_group() => {
                    return Ok(false);
                }
                Err(error) => return Err(failure_of(&error)),
            };
            for record in &page.items {
                if let Some(revision) = self.recorded(record) {
                    inventory.store_seen(revision, sighting(record));
                }
            }
            listed = listed.saturating_add(page.items.len().max(1));
            if listed > MAX_RECORDS {
                return Err(too_many());
            }
            self.version = page.metadata.resource_version.unwrap_or_default();
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
        inventory.forget_absent();
        self.inventory = Arc::new(inventory);
        Ok(true)
    }

    /// Whether the kind of the records belongs to an API group, which a cluster may not serve.
    fn has_api_group(&self) -> bool {
        self.records.api_version.contains('/')
    }

    /// Opens the watch where the list, or the last watch, has ended.
    async fn open_watch(&mut self) -> Result<Events, Failure> {
        let params = WatchParams::default().labels(&self.records.label_selector).timeout(WATCH_SECONDS);
        let events =
            self.api.watch_metadata(&params, &self.version).await.map_err(|error| failure_of(&error))?;
        Ok(events.boxed())
    }

    fn recorded(&self, record: &Record) -> Option<StoredRevision> {
        let revision = self.records.revision(&record.namespace()?, record.labels())?;
        let is_valid =
            [&revision.release.namespace, &revision.release.name].iter().all(|name| name.len() <= MAX_NAME);
        is_valid.then_some(revision)
    }

    /// Follows the watch until it breaks or `list_again` is notified. `publish` gets each new state, with the release that
    /// has changed.
    pub async fn run(
        mut self,
        list_again: &Notify,
        mut publish: impl FnMut(Arc<ReleaseInventory>, ReleaseId),
    ) -> WatchEnd {
        loop {
            let Some(events) = &mut self.events else {
                tokio::select! {
                    () = tokio::time::sleep(NOT_SERVED_RETRY) => {}
                    () = list_again.notified() => {}
                }
                return WatchEnd::ListAgain;
            };
            let event = tokio::select! {
                event = events.next() => event,
                silent = until_silent(&mut self.probe, &mut self.last_answer) => return silent,
                () = list_again.notified() => return WatchEnd::ListAgain,
            };
            let Some(event) = event else {
                tokio::time::sleep(CONTINUE_PAUSE).await;
                match self.open_watch().await {
                    Ok(events) => {
                        self.events = Some(events);
                        self.last_answer = Instant::now();
                    }
                    Err(failure) => {
                        return WatchEnd::Broken { failure, silent_since: Some(self.last_answer) };
                    }
                }
                continue;
            };
            self.last_answer = Instant::now();
            match self.apply_event(event) {
                Ok(Some(release)) => publish(self.inventory(), release),
                Ok(None) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// Takes in an event. Returns the release that has changed.
    fn apply_event(
        &mut self,
        event: kube::Result<WatchEvent<Record>>,
    ) -> Result<Option<ReleaseId>, WatchEnd> {
        let (record, deleted) = match event {
            Ok(WatchEvent::Added(record) | WatchEvent::Modified(record)) => (record, false),
            Ok(WatchEvent::Deleted(record)) => (record, true),
            Ok(WatchEvent::Bookmark(bookmark)) => {
                self.version = bookmark.metadata.resource_version;
                return Ok(None);
            }
            // The changes since the last event are not available any more.
            Ok(WatchEvent::Error(status)) if status.code == 410 => return Err(WatchEnd::Expired),
            Ok(WatchEvent::Error(status)) => return Err(broken(&kube::Error::Api(status))),
            Err(error) => return Err(broken(&error)),
        };
        if let Some(version) = record.resource_version() {
            self.version = version;
        }
        let Some(revision) = self.recorded(&record) else { return Ok(None) };
        let inventory = Arc::make_mut(&mut self.inventory);
        let release = revision.release.clone();
        if deleted {
            inventory.forget(&revision);
        } else {
            inventory.store_seen(revision, sighting(&record));
            if inventory.count() > MAX_RECORDS {
                return Err(WatchEnd::Broken { failure: too_many(), silent_since: None });
            }
        }
        Ok(Some(release))
    }
}

fn too_many() -> Failure {
    Failure::new(
        Category::Rejected,
        format!(
            "the workload cluster has more than {MAX_RECORDS} records of releases; Chandler does not use it"
        ),
    )
}

/// Returns the version of a record that is seen now.
fn sighting(record: &Record) -> Sighting {
    let version = record.resource_version().filter(|version| version.len() <= MAX_NAME);
    Sighting { resource_version: version.unwrap_or_default(), at: Timestamp::now() }
}

fn broken(error: &kube::Error) -> WatchEnd {
    WatchEnd::Broken { failure: failure_of(error), silent_since: None }
}

/// Waits until the cluster has stopped answering: asks whenever nothing was heard for a while. Any answer counts, even a
/// refusal, and is recorded in `last_answer`.
async fn until_silent(probe: &mut Probe, last_answer: &mut Instant) -> WatchEnd {
    loop {
        let start = *START;
        tokio::time::sleep_until(start + probe_at(last_answer.saturating_duration_since(start))).await;
        if let Err(failure) = wait_for_answer(probe).await {
            return WatchEnd::Broken { failure, silent_since: Some(*last_answer) };
        }
        *last_answer = Instant::now();
    }
}

/// Waits for an answer. Asks several times, because a connection that is kept open may have been dropped on its way while
/// the cluster is reachable with a new one.
async fn wait_for_answer(probe: &mut Probe) -> Result<(), Failure> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut last = None;
    while Instant::now() < deadline {
        let until = deadline.min(Instant::now() + PROBE_TIMEOUT);
        match tokio::time::timeout_at(until, probe.answer()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => {
                last = Some(failure);
                tokio::time::sleep_until(deadline.min(Instant::now() + PROBE_PAUSE)).await;
            }
            Err(_) => last = None,
        }
    }
    let silent =
        || Failure::new(Category::Unreachable, "the API server of the workload cluster does not answer");
    Err(last.unwrap_or_else(silent))
}
