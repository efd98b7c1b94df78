//! The watch of one kind: lists its objects, follows their changes, and tries again after errors.

use std::{sync::Arc, time::Duration};

use chandler_core::{backoff, health::ObjectState, identity::ReleaseId, reachability::STABLE_AFTER};
use jiff::Timestamp;
use kube::{
    api::{ListParams, WatchParams},
    core::Request as ResourceRequest,
};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    HealthWatches, LIST_AGAIN_PAUSE, ManagedReleases,
    fingerprint::fingerprint,
    kind::SharedKind,
    object::{read_for_check, read_head, read_object},
    resources::Resources,
    source::{Position, Source},
    states::{Listed, MAX_OBJECTS, ReadObject, States},
};
use crate::{
    page_size::PageSize,
    pages::{Change, Event, Page, read_limited},
    request::{ClusterClient, Lines},
    status::failure_status,
    turn::in_turn,
    watch_error::{Next, WatchError},
};

/// Maximum number of responses of a list.
const MAX_PAGES: usize = 1000;
/// After so many seconds the API server ends a watch, which is then continued.
const WATCH_SECONDS: u32 = 290;
/// Pause before a watch that ended is continued.
const CONTINUE_PAUSE: Duration = Duration::from_millis(500);
/// How often a cluster that does not serve a kind is asked again.
const NOT_SERVED_RETRY: Duration = Duration::from_mins(1);
/// The wait after the first failure. It doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What the watches of a cluster share.
pub struct WatchedCluster {
    pub client: ClusterClient,
    pub resources: Resources,
    source: Arc<Source>,
    is_managed: ManagedReleases,
    /// One watch is opened at a time, so that all use the connection of the first.
    turn: Semaphore,
}

impl WatchedCluster {
    pub fn new(client: ClusterClient, source: Arc<Source>, is_managed: ManagedReleases) -> Self {
        Self { client, resources: Resources::default(), source, is_managed, turn: Semaphore::new(1) }
    }
}

/// The watch of one kind on a cluster.
pub struct KindWatch {
    watches: HealthWatches,
    cluster: Arc<WatchedCluster>,
    kind: SharedKind,
    /// Failures since the watch was open for a while.
    failures: u32,
}

impl KindWatch {
    pub fn new(watches: HealthWatches, cluster: Arc<WatchedCluster>, kind: SharedKind) -> Self {
        Self { watches, cluster, kind, failures: 0 }
    }

    /// Watches for ever, after a pause.
    pub async fn run(mut self, pause: Duration) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
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

    /// Opens the watch, once no list has to be repeated. Others can list meanwhile.
    async fn open(&self) -> Result<Lines, WatchError> {
        loop {
            if let Some(lines) = self.try_open().await? {
                return Ok(lines);
            }
            tokio::time::sleep(LIST_AGAIN_PAUSE).await;
        }
    }

    /// Lists the objects if needed, and opens the watch. Few clusters list or connect at the same time. Returns `None` if the
    /// objects have to be listed again before.
    async fn try_open(&self) -> Result<Option<Lines>, WatchError> {
        let (cluster, shared) = (self.cluster.clone(), &self.watches.0);
        let turn = cluster.turn.acquire().await;
        let version = self.watches.states().version(&self.kind, &cluster.source);
        let permit = if version.is_none() { Some(shared.lists.acquire().await) } else { None };
        // After the permit to list: what may connect does not wait for others to list.
        let connect = shared.connects.acquire().await;
        let open = async {
            let version = match version {
                Some(version) => version,
                // A list that takes long no longer keeps other clusters waiting.
                None => in_turn(permit, self.list()).await?,
            };
            // Releases may have begun to use or to compare the kind, or got other health checks, since the list has begun.
            if self.watches.states().is_outdated(&self.kind) {
                return Ok(None);
            }
            self.open_watch(&version).await.map(Some)
        };
        in_turn((turn, connect), open).await
    }

    /// Lists all objects of the releases in question. Returns the version of the list.
    async fn list(&self) -> Result<String, WatchError> {
        let (listed, version) = self.read_list().await?;
        self.watches.keep_listed(&self.kind, listed.bytes)?;
        let position = self.position(&version);
        self.watches.update(|states, now| states.listed(&self.kind, listed, position, now));
        Ok(version)
    }

    /// Reads the pages of a list. One that is too large is read again with fewer objects.
    async fn read_list(&self) -> Result<(Listed, String), WatchError> {
        let Self { cluster, kind, .. } = self;
        let path = cluster.resources.path(&cluster.client, kind).await?;
        let mut size = PageSize::of(kind.has_status(), &kind.kind);
        let mut kept = cluster.client.kept();
        let mut params = ListParams::default().labels(&cluster.source.selector);
        let mut listed = self.watches.states().begin_list(kind);
        for _ in 0..MAX_PAGES {
            params.limit = Some(size.objects());
            let resource = ResourceRequest::new(path.all());
            let request =
                if kind.has_status() { resource.list(&params) } else { resource.list_metadata(&params) };
            let request = request.map_err(kube::Error::BuildRequest)?;
            let text = match cluster.client.read(request).await {
                Err(WatchError::TooLarge(limit)) => {
                    size = size.smaller().ok_or(WatchError::TooLarge(limit))?;
                    continue;
                }
                text => text?,
            };
            let page = Page::parse(&text)?;
            self.read_page(&page, &mut listed).await;
            kept.set(listed.bytes)?;
            let (version, token) = page.into_position();
            if token.is_empty() {
                return Ok((listed, version));
            }
            params.continue_token = Some(token);
        }
        Err(WatchError::Unreadable)
    }

    /// Reads the objects of a page. One that cannot be read counts as not listed: nothing is concluded from it.
    async fn read_page(&self, page: &Page<'_>, listed: &mut Listed) {
        for item in page.items() {
            if listed.objects.len() >= MAX_OBJECTS {
                return;
            }
            let object = self.read(item, listed.fingerprints.is_some());
            if let Ok(ReadObject { head, state, fingerprint, .. }) = object {
                let is_known = self.watches.states().knows(head.release.as_ref());
                if is_known || self.is_managed(head.release.as_ref()) {
                    if let Some(fingerprints) = &mut listed.fingerprints {
                        fingerprints.extend(fingerprint.map(|number| (head.key.clone(), number)));
                    }
                    listed.insert(head.key, head.release, state);
                } else {
                    listed.left_out.extend(head.release);
                }
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Reads an object and its state, which results from the health check of its release if there is one for the kind. Its
    /// fingerprint is computed only if it is needed.
    fn read(&self, object: &RawValue, needs_fingerprint: bool) -> Result<ReadObject, WatchError> {
        read_limited(object, |object| self.read_parts(object, needs_fingerprint))
    }

    fn read_parts(&self, object: &RawValue, needs_fingerprint: bool) -> Result<ReadObject, WatchError> {
        let (head, state) = read_object(&self.kind, object)?;
        let fingerprint = needs_fingerprint.then(|| fingerprint(&self.kind, object).ok()).flatten();
        let states = self.watches.states();
        let (check, checks_version) =
            (states.check(&self.kind, head.release.as_ref()), states.checks_version());
        drop(states);
        let state = match check {
            // What is nested too deeply to be read has no known state.
            Some(check) => {
                read_for_check(&self.kind, object).map_or(ObjectState::Unknown, |object| check.state(&object))
            }
            None => state,
        };
        Ok(ReadObject { head, state, checks_version, fingerprint })
    }

    /// Returns whether Chandler manages a release, although it may not be known yet.
    fn is_managed(&self, release: Option<&ReleaseId>) -> bool {
        release.is_some_and(|release| (self.cluster.is_managed)(release))
    }

    fn position(&self, version: &str) -> Position {
        Position { source: self.cluster.source.clone(), version: version.to_owned() }
    }

    async fn open_watch(&self, version: &str) -> Result<Lines, WatchError> {
        let Self { cluster, kind, .. } = self;
        let path = cluster.resources.path(&cluster.client, kind).await?;
        let params = WatchParams::default().labels(&cluster.source.selector).timeout(WATCH_SECONDS);
        let resource = ResourceRequest::new(path.all());
        let request = if kind.has_status() {
            resource.watch(&params, version)
        } else {
            resource.watch_metadata(&params, version)
        };
        cluster.client.open(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Follows the watch until it ends.
    async fn follow(&self, mut lines: Lines) -> Result<(), WatchError> {
        while let Some(line) = lines.next().await? {
            self.take_in(&line)?;
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    fn take_in(&self, line: &[u8]) -> Result<(), WatchError> {
        let event = Event::parse(line)?;
        if event.change == Change::Error {
            let status = failure_status(event.object.get().as_bytes()).ok_or(WatchError::Unreadable)?;
            return Err(kube::Error::Api(status.boxed()).into());
        }
        // What cannot be read is left out, so that one such object does not stop the watch.
        match event.change {
            Change::Added | Change::Modified => {
                let is_fingerprinted = self.watches.states().is_fingerprinted(&self.kind);
                let Ok(object) = self.read(event.object, is_fingerprinted) else { return Ok(()) };
                let is_managed = self.is_managed(object.head.release.as_ref());
                let version = object.head.version.clone();
                self.update_at(&version, |states, now| states.changed(&self.kind, object, is_managed, now));
                self.watches.keep()?;
            }
            Change::Deleted | Change::Bookmark | Change::Error => {
                let Ok(head) = read_limited(event.object, read_head) else { return Ok(()) };
                let is_deleted = event.change == Change::Deleted;
                self.update_at(&head.version, |states, now| {
                    if is_deleted { states.deleted(&self.kind, &head, now) } else { Vec::new() }
                });
            }
        }
        Ok(())
    }

    /// Takes in an event, after which the watch is continued at its version, if it has one.
    fn update_at(&self, version: &str, change: impl FnOnce(&mut States, Timestamp) -> Vec<ReleaseId>) {
        self.watches.update(|states, now| {
            if !version.is_empty() {
                states.advance(&self.kind, self.position(version));
            }
            change(states, now)
        });
    }

    /// Decides how to go on after the watch has ended. Returns how long to wait before.
    fn pause_after(&mut self, ended: Result<(), WatchError>, was_stable: bool) -> Duration {
        if was_stable {
            self.failures = 0;
        }
        let Err(error) = ended else { return if was_stable { CONTINUE_PAUSE } else { self.backoff() } };
        let next = error.next(self.kind.is_optional());
        if next != Next::Continue {
            self.watches.states().lose_position(&self.kind);
        }
        if next == Next::NotServed {
            self.cluster.resources.forget(&self.kind);
            self.watches.update(|states, now| {
                let concerned = states.not_served(&self.kind);
                concerned.into_iter().chain(states.refused(&self.kind, now)).collect()
            });
            return backoff::jittered(NOT_SERVED_RETRY, 0, &self.seed());
        }
        self.watches.update(|states, now| {
            let refused = if error.is_forbidden() { states.refused(&self.kind, now) } else { Vec::new() };
            states.failed(&self.kind).into_iter().chain(refused).collect()
        });
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
