//! The watch of one kind: lists its objects, follows their changes, and tries again after errors.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use chandler_core::{backoff, reachability::STABLE_AFTER};
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::Request as ResourceRequest,
};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    HealthWatches,
    error::{Next, WatchError},
    fingerprint::fingerprint,
    kind::SharedKind,
    object::{Change, Event, ObjectKey, Page, parse, read_head, read_object},
    request::{self, Lines},
    resources::Resources,
    states::{Listed, MAX_OBJECTS},
};

/// Number of objects in one response of a list. Definitions of custom resources are large.
const PAGE: u32 = 500;
const PAGE_OF_DEFINITIONS: u32 = 50;
/// After so many seconds the API server ends a watch, which is then continued.
const WATCH_SECONDS: u32 = 290;
/// Pause before a watch that ended is continued.
const CONTINUE_PAUSE: Duration = Duration::from_millis(500);
/// How often a cluster that does not serve a kind is asked again.
const NOT_SERVED_RETRY: Duration = Duration::from_mins(1);
/// The wait after the first failure. It doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// A list that takes longer no longer keeps other kinds and clusters waiting.
const TURN: Duration = Duration::from_secs(5);

/// What the watches of a cluster share.
pub struct WatchedCluster {
    pub client: Client,
    pub resources: Resources,
    selector: String,
    /// One watch is opened at a time, so that all use the connection of the first.
    turn: Semaphore,
}

impl WatchedCluster {
    pub fn new(client: Client, selector: String) -> Self {
        Self { client, resources: Resources::default(), selector, turn: Semaphore::new(1) }
    }
}

/// The watch of one kind on a cluster.
pub struct KindWatch {
    watches: HealthWatches,
    cluster: Arc<WatchedCluster>,
    kind: SharedKind,
    /// Where the watch is continued. `None` means that the objects have to be listed.
    version: Option<String>,
    /// Failures since the watch was open for a while.
    failures: u32,
}

impl KindWatch {
    pub fn new(watches: HealthWatches, cluster: Arc<WatchedCluster>, kind: SharedKind) -> Self {
        Self { watches, cluster, kind, version: None, failures: 0 }
    }

    /// Watches for ever.
    pub async fn run(mut self) {
        loop {
            // Most of the time is spent in `follow`: what is needed to open a watch is freed before.
            let opened = Box::pin(self.open()).await;
            let began = Instant::now();
            let ended = match opened {
                Ok(lines) => self.follow(lines).await,
                Err(error) => Err(error),
            };
            let pause = self.pause_after(ended, began.elapsed() >= STABLE_AFTER);
            tokio::time::sleep(pause).await;
        }
    }

    /// Lists the objects if needed, and opens the watch. Few clusters list at the same time.
    async fn open(&mut self) -> Result<Lines, WatchError> {
        let (cluster, lists) = (self.cluster.clone(), self.watches.0.lists.clone());
        let turn = cluster.turn.acquire().await;
        let permit = if self.version.is_none() { Some(lists.acquire().await) } else { None };
        let mut open = pin!(async {
            let version = match self.version.take() {
                Some(version) => version,
                None => self.list().await?,
            };
            self.version = Some(version.clone());
            self.open_watch(&version).await
        });
        if let Ok(opened) = tokio::time::timeout(TURN, &mut open).await {
            return opened;
        }
        drop((turn, permit));
        open.await
    }

    /// Lists all objects. Returns the version of the list.
    async fn list(&self) -> Result<String, WatchError> {
        let Self { cluster, kind, .. } = self;
        let path = cluster.resources.path(&cluster.client, kind).await?;
        let is_definition = kind.kind == "CustomResourceDefinition";
        let page_size = if is_definition { PAGE_OF_DEFINITIONS } else { PAGE };
        let mut params = ListParams::default().labels(&cluster.selector).limit(page_size);
        let mut listed = HashMap::new();
        let mut fingerprints = self.watches.states().is_followed(kind).then(HashMap::new);
        loop {
            let resource = ResourceRequest::new(path.all());
            let request =
                if kind.has_status() { resource.list(&params) } else { resource.list_metadata(&params) };
            let request = request.map_err(kube::Error::BuildRequest)?;
            let text = request::read(&cluster.client, request).await?;
            let page: Page<'_> = serde_json::from_slice(&text).map_err(|_| WatchError::Unreadable)?;
            self.read_page(&page, &mut listed).await;
            if let Some(fingerprints) = &mut fingerprints {
                self.read_fingerprints(&page, fingerprints).await;
            }
            if page.metadata.token.is_empty() {
                self.watches.update(|states, now| states.listed(kind, listed, now));
                if let Some(fingerprints) = fingerprints {
                    self.watches.update(|states, _| states.listed_fingerprints(kind, fingerprints));
                }
                return Ok(page.metadata.resource_version);
            }
            params.continue_token = Some(page.metadata.token);
        }
    }

    /// Reads the objects of a page. One that cannot be read counts as not listed: nothing is concluded from it.
    async fn read_page(&self, page: &Page<'_>, listed: &mut Listed) {
        for item in page.items.iter().flatten() {
            if listed.len() >= MAX_OBJECTS {
                return;
            }
            if let Ok((head, state)) = read_object(&self.kind, item) {
                listed.insert(head.key, (head.release, state));
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Reads the fingerprints of the objects of a page.
    async fn read_fingerprints(&self, page: &Page<'_>, fingerprints: &mut HashMap<ObjectKey, u64>) {
        for item in page.items.iter().flatten() {
            if fingerprints.len() >= MAX_OBJECTS {
                return;
            }
            fingerprints.extend(fingerprint(&self.kind, item).ok());
            tokio::task::consume_budget().await;
        }
    }

    async fn open_watch(&self, version: &str) -> Result<Lines, WatchError> {
        let Self { cluster, kind, .. } = self;
        let path = cluster.resources.path(&cluster.client, kind).await?;
        let params = WatchParams::default().labels(&cluster.selector).timeout(WATCH_SECONDS);
        let resource = ResourceRequest::new(path.all());
        let request = if kind.has_status() {
            resource.watch(&params, version)
        } else {
            resource.watch_metadata(&params, version)
        };
        request::open(&cluster.client, request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Follows the watch until it ends.
    async fn follow(&mut self, mut lines: Lines) -> Result<(), WatchError> {
        while let Some(line) = lines.next().await? {
            self.take_in(&line)?;
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    fn take_in(&mut self, line: &[u8]) -> Result<(), WatchError> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(|_| WatchError::Unreadable)?;
        if event.change == Change::Error {
            return Err(kube::Error::Api(parse(event.object)?).into());
        }
        // What cannot be read is left out, so that one such object does not stop the watch.
        let version = match event.change {
            Change::Added | Change::Modified => {
                let Ok((head, state)) = read_object(&self.kind, event.object) else { return Ok(()) };
                let version = head.version.clone();
                let is_followed = self.watches.states().is_followed(&self.kind);
                if let Some((_, fingerprint)) =
                    is_followed.then(|| fingerprint(&self.kind, event.object).ok()).flatten()
                {
                    self.watches.update(|states, _| states.set_fingerprint(&self.kind, &head, fingerprint));
                }
                self.watches.update(|states, now| states.changed(&self.kind, head, state, now));
                version
            }
            Change::Deleted | Change::Bookmark | Change::Error => {
                let Ok(head) = read_head(event.object) else { return Ok(()) };
                if event.change == Change::Deleted {
                    self.watches.update(|states, now| states.deleted(&self.kind, &head, now));
                }
                head.version
            }
        };
        if !version.is_empty() {
            self.version = Some(version);
        }
        Ok(())
    }

    /// Decides how to go on after the watch has ended. Returns how long to wait before.
    fn pause_after(&mut self, ended: Result<(), WatchError>, was_stable: bool) -> Duration {
        if was_stable {
            self.failures = 0;
        }
        let Err(error) = ended else { return if was_stable { CONTINUE_PAUSE } else { self.backoff() } };
        let next = error.next(&self.kind);
        if next != Next::Continue {
            self.version = None;
        }
        if next == Next::NotServed {
            self.cluster.resources.forget(&self.kind);
            self.watches.update(|states, _| states.not_served(&self.kind));
            return backoff::jittered(NOT_SERVED_RETRY, 0, &self.seed());
        }
        self.watches.update(|states, _| states.failed(&self.kind));
        if was_stable && error.is_expired() {
            return CONTINUE_PAUSE;
        }
        let (cluster, kind) = (&self.watches.0.cluster, &self.kind);
        if error.is_forbidden() && self.failures == 0 {
            tracing::warn!(%cluster, %kind, "the health of these objects is unknown: {error}");
        } else {
            tracing::debug!(%cluster, %kind, "the watch of objects has ended: {error}");
        }
        self.backoff()
    }

    /// Counts a failure. Returns how long to wait: watches that failed at the same time do not retry at the same time.
    fn backoff(&mut self) -> Duration {
        let base = FIRST_RETRY.saturating_mul(1 << self.failures.min(6)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        backoff::jittered(base, self.failures, &self.seed())
    }

    fn seed(&self) -> String {
        format!("{}/{}", self.watches.0.cluster, self.kind)
    }
}
