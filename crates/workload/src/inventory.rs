//! The watch that keeps the inventory of one cluster: the metadata of a tool's release records, never their content.
//!
//! It is a list and a watch like kube's `watcher`, but every answer has a deadline, and a cluster that sends nothing is
//! asked whether it still answers.

mod record;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use chandler_core::{
    failure::{Category, Failure},
    identity::ReleaseId,
    inventory::{PendingRecords, ReleaseInventory, ReleaseRecords},
    reachability::{ANSWER_TIMEOUT, LATEST_PROBE, probe_at},
};
use http::Request;
use kube::{
    Resource as _,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchParams},
    core::{GroupVersionKind, Request as ResourceRequest},
};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use self::record::Record;
use crate::{
    answers::Answers,
    budget::KeptShare,
    page_size::PageSize,
    pages::{Change, Event, Page},
    probe::Probe,
    request::{ClusterClient, Lines, Text},
    status::failure_status,
    ticks,
    turn::{TURN, in_turn},
    watch_error::{Next, WatchError},
};

/// How often a cluster that does not serve the kind of the records is asked again.
const NOT_SERVED_RETRY: Duration = Duration::from_mins(1);
/// Maximum number of responses of a list.
const MAX_PAGES: usize = 1000;
/// Maximum number of records of a cluster.
const MAX_RECORDS: usize = 50_000;
/// What a record takes in memory, about.
const PER_RECORD: usize = 512;
/// From so many records on, there is a pause after each event, because all of them are copied for it.
const MANY_RECORDS: usize = 1_000;
const PAUSE_PER_RECORD: Duration = Duration::from_micros(10);
/// After so many seconds the API server ends a watch, which is then continued.
const WATCH_SECONDS: u32 = 290;
/// Pause before a watch that ended is continued, so that a server that ends watches at once is not flooded.
const CONTINUE_PAUSE: Duration = Duration::from_millis(500);
/// How long one request may take that asks whether the cluster answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(7);
/// Pause after such a request that has failed at once.
const PROBE_PAUSE: Duration = Duration::from_secs(2);

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
    client: ClusterClient,
    /// The path of the records.
    path: String,
    records: Arc<ReleaseRecords>,
    inventory: Arc<ReleaseInventory>,
    kept: KeptShare,
    /// `None` means that the cluster does not serve the kind of the records, or that the watch is being opened again.
    events: Option<Lines>,
    version: String,
    answers: Answers,
}

impl InventoryWatch {
    /// Lists the records and opens the watch. `probe` asks the cluster whenever the watch sends nothing. `pending` is what the
    /// last watch has seen. Every answer is recorded in `answers`.
    pub async fn open(
        client: ClusterClient,
        probe: Probe,
        records: Arc<ReleaseRecords>,
        pending: PendingRecords,
        answers: Answers,
    ) -> Result<Self, Failure> {
        let path = DynamicObject::url_path(&resource(&records)?, None);
        let mut watch = Self {
            probe,
            kept: client.kept(),
            client,
            path,
            records,
            inventory: Arc::default(),
            events: None,
            version: String::new(),
            answers,
        };
        watch.list_and_watch(pending).await.map_err(|error| error.failure())?;
        watch.answers.record();
        Ok(watch)
    }

    /// Returns the version of the list, or of the last event.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn inventory(&self) -> Arc<ReleaseInventory> {
        self.inventory.clone()
    }

    async fn list_and_watch(&mut self, pending: PendingRecords) -> Result<(), WatchError> {
        // A cluster that does not serve the kind has no record of it.
        if self.list(pending).await? {
            let request = self.watch_request()?;
            self.events = Some(self.client.open(request).await?);
        }
        Ok(())
    }

    /// Lists all records. Returns `false` if the cluster does not serve their kind.
    async fn list(&mut self, pending: PendingRecords) -> Result<bool, WatchError> {
        let mut inventory = ReleaseInventory::with_pending(pending);
        let mut size = PageSize::of_records();
        let mut params = ListParams::default().labels(&self.records.label_selector);
        for _ in 0..MAX_PAGES {
            params.limit = Some(size.objects());
            let text = match self.read_page(&params).await {
                Err(WatchError::TooLarge(limit)) => {
                    size = size.smaller().ok_or(WatchError::TooLarge(limit))?;
                    continue;
                }
                Err(error) if self.has_api_group() && error.next(true) == Next::NotServed => {
                    return Ok(false);
                }
                text => text?,
            };
            let page = Page::parse(&text)?;
            for item in page.items() {
                let record = Record::parse(item)?;
                if let Some(revision) = record.revision(&self.records) {
                    inventory.store_seen(revision, record.sighting());
                }
                tokio::task::consume_budget().await;
            }
            self.keep(inventory.count())?;
            let (version, token) = page.into_position();
            if token.is_empty() {
                inventory.forget_absent();
                self.inventory = Arc::new(inventory);
                self.version = version;
                return Ok(true);
            }
            params.continue_token = Some(token);
        }
        Err(WatchError::Unreadable)
    }

    async fn read_page(&mut self, params: &ListParams) -> Result<Text, WatchError> {
        let request = ResourceRequest::new(self.path.clone()).list_metadata(params);
        self.client.read(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Takes in that so many records are kept. Returns an error if there are too many.
    fn keep(&mut self, count: usize) -> Result<(), WatchError> {
        if count > MAX_RECORDS {
            return Err(WatchError::TooManyRecords(MAX_RECORDS));
        }
        Ok(self.kept.set(count * PER_RECORD)?)
    }

    /// Whether the kind of the records belongs to an API group, which a cluster may not serve. Every API server serves the core
    /// kinds: a 404 for them is the answer of something else.
    fn has_api_group(&self) -> bool {
        self.records.api_version.contains('/')
    }

    /// Returns a request for the changes since the list, or since the last watch.
    fn watch_request(&self) -> Result<Request<Vec<u8>>, WatchError> {
        let params = WatchParams::default().labels(&self.records.label_selector).timeout(WATCH_SECONDS);
        let request = ResourceRequest::new(self.path.clone()).watch_metadata(&params, &self.version);
        Ok(request.map_err(kube::Error::BuildRequest)?)
    }

    /// Follows the watch until it breaks or `list_again` is notified. One that only ends is opened again, with a permit of
    /// `connects`. `publish` gets each new state, with the release that has changed.
    pub async fn run(
        mut self,
        list_again: &Notify,
        connects: &Semaphore,
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
            let line = tokio::select! {
                line = events.next() => line,
                silent = until_silent(&mut self.probe, &self.answers) => return silent,
                () = list_again.notified() => return WatchEnd::ListAgain,
            };
            let line = match line {
                Ok(line) => line,
                Err(error) if error.is_cut_off() => None,
                Err(error) => return broken(&error),
            };
            let Some(line) = line else {
                if let Err(ended) = self.continue_watch(connects).await {
                    return ended;
                }
                continue;
            };
            self.answers.record();
            let applied = self.apply_event(&line);
            drop(line);
            match applied {
                Ok(Some(release)) => publish(self.inventory(), release),
                Ok(None) => {}
                Err(ended) => return ended,
            }
            let pause = pause_after_event(self.inventory.count());
            if pause.is_zero() {
                tokio::task::consume_budget().await;
            } else {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Opens the watch again after a pause, with a permit of `connects` or, if none is free soon, without: each cluster may need a
    /// new connection, and a load balancer that stops ends the watches of many, but those that do not answer must delay no other.
    async fn continue_watch(&mut self, connects: &Semaphore) -> Result<(), WatchEnd> {
        self.events = None;
        let (client, request) = (self.client.clone(), self.watch_request());
        let open = async {
            tokio::time::sleep(CONTINUE_PAUSE).await;
            let turn = tokio::time::timeout(TURN, connects.acquire()).await;
            in_turn(turn, async { client.open(request?).await }).await
        };
        // As if the cluster were asked meanwhile whether it still answers.
        let deadline = self.answers.last() + LATEST_PROBE + ANSWER_TIMEOUT;
        let failure = match tokio::time::timeout_at(deadline, open).await {
            Ok(Ok(events)) => {
                self.events = Some(events);
                self.answers.record();
                return Ok(());
            }
            Ok(Err(error)) => error.failure(),
            Err(_) => no_answer(),
        };
        Err(WatchEnd::Broken { failure, silent_since: Some(self.answers.last()) })
    }

    /// Takes in an event. Returns the release that has changed.
    fn apply_event(&mut self, line: &[u8]) -> Result<Option<ReleaseId>, WatchEnd> {
        let event = Event::parse(line).map_err(|error| broken(&error))?;
        if event.change == Change::Error {
            return Err(match failure_status(event.object.get().as_bytes()) {
                // The changes since the last event are not available any more.
                Some(status) if status.code == 410 => WatchEnd::Expired,
                Some(status) => broken(&kube::Error::Api(status.boxed()).into()),
                None => broken(&WatchError::Unreadable),
            });
        }
        let record = Record::parse(event.object).map_err(|error| broken(&error))?;
        if let Some(version) = record.version() {
            version.clone_into(&mut self.version);
        }
        if event.change == Change::Bookmark {
            return Ok(None);
        }
        let Some(revision) = record.revision(&self.records) else { return Ok(None) };
        let release = revision.release.clone();
        let inventory = Arc::make_mut(&mut self.inventory);
        if event.change == Change::Deleted {
            inventory.forget(&revision);
        } else {
            inventory.store_seen(revision, record.sighting());
        }
        let count = inventory.count();
        self.keep(count).map_err(|error| broken(&error))?;
        Ok(Some(release))
    }
}

/// Returns how long to wait after an event, so that a server that sends many events for many records does not slow others down.
fn pause_after_event(records: usize) -> Duration {
    if records < MANY_RECORDS {
        return Duration::ZERO;
    }
    PAUSE_PER_RECORD * u32::try_from(records).unwrap_or(u32::MAX)
}

fn broken(error: &WatchError) -> WatchEnd {
    WatchEnd::Broken { failure: error.failure(), silent_since: None }
}

/// Waits until the cluster has stopped answering: asks whenever nothing was heard for a while. Any answer counts, even a
/// refusal, and is recorded.
async fn until_silent(probe: &mut Probe, answers: &Answers) -> WatchEnd {
    loop {
        let at = probe_at(ticks::since_start(answers.last()), probe.is_connected());
        tokio::time::sleep_until(ticks::after_start(at)).await;
        if let Err(failure) = wait_for_answer(probe).await {
            return WatchEnd::Broken { failure, silent_since: Some(answers.last()) };
        }
        answers.record();
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
    Err(last.unwrap_or_else(no_answer))
}

fn no_answer() -> Failure {
    Failure::new(Category::Unreachable, "the API server of the workload cluster does not answer")
}
