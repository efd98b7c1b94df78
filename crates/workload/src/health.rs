//! The states of the objects of a cluster's releases, kept up to date by watches: one for each kind in use, shared by all
//! releases. All watches of a cluster share one connection if its API server supports HTTP/2.
//!
//! Of each object only its state is kept. A watch that breaks changes nothing: the last known states stay valid.

mod checks;
mod fingerprint;
mod kind;
mod object;
mod resources;
mod source;
mod states;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chandler_api::status::ObjectRecord;
use chandler_core::{
    drift::Fingerprint,
    health::{Confirmation, HealthChecks, Observation},
    identity::{ClusterKey, ReleaseId},
    target::Target,
};
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use self::{
    kind::{SharedKind, watch_changes},
    source::Source,
    states::States,
    watch::{KindWatch, WatchedCluster},
};
use crate::{InventoryChange, budget::KeptShare, reach::SharedClient, watch_error::WatchError};

/// Before a kind is listed again because of a release, others may begin to use it.
const LIST_AGAIN_PAUSE: Duration = Duration::from_secs(2);

/// Returns whether Chandler manages a release, as far as the records of the cluster say it. Releases are known here only once
/// they were reconciled.
pub(crate) type ManagedReleases = Arc<dyn Fn(&ReleaseId) -> bool + Send + Sync>;

/// The versions that the watches of a cluster have come to, as the API server counts them.
#[derive(Debug, Default)]
pub(crate) struct WatchedVersions(Vec<(SharedKind, u64)>);

/// The watched objects of one cluster, shared by all its releases. Clones share them.
#[derive(Clone)]
pub struct HealthWatches(Arc<Shared>);

struct Shared {
    cluster: ClusterKey,
    changes: mpsc::UnboundedSender<InventoryChange>,
    /// Limits how many clusters connect at the same time. Any request may need a new connection.
    connects: Arc<Semaphore>,
    /// Limits how many clusters list objects at the same time.
    lists: Arc<Semaphore>,
    states: Mutex<States>,
    /// The memory of the states. It is locked after them.
    kept: Mutex<KeptShare>,
    session: Mutex<Option<Session>>,
    /// Notified when other watches have to be open.
    watches_changed: Notify,
    /// Notified when a check is due.
    check_due: Notify,
}

/// A time during which the cluster is available with the same kubeconfig.
#[derive(Clone)]
struct Session {
    target: Arc<Target>,
    client: SharedClient,
    source: Arc<Source>,
    is_managed: ManagedReleases,
}

impl Session {
    fn equals(&self, other: &Self) -> bool {
        (&self.target, &self.source) == (&other.target, &other.source)
    }
}

impl fmt::Debug for HealthWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthWatches").field("cluster", &self.0.cluster).finish_non_exhaustive()
    }
}

impl HealthWatches {
    pub(crate) fn new(
        cluster: ClusterKey,
        changes: mpsc::UnboundedSender<InventoryChange>,
        connects: Arc<Semaphore>,
        lists: Arc<Semaphore>,
        kept: KeptShare,
    ) -> Self {
        Self(Arc::new(Shared {
            cluster,
            changes,
            connects,
            lists,
            states: Mutex::default(),
            kept: Mutex::new(kept),
            session: Mutex::default(),
            watches_changed: Notify::new(),
            check_due: Notify::new(),
        }))
    }

    /// Sets the kinds that a release uses, as API version and kind. Opens the missing watches, and closes those that no release
    /// uses any more.
    pub fn set_kinds(&self, release: &ReleaseId, kinds: BTreeSet<(String, String)>) {
        self.update_kinds(|states| states.set_kinds(release, kinds));
    }

    /// Sets the health checks of the policy of a release. If they have changed, the objects of their kinds are listed again. A
    /// release that starts to use kinds needs its checks before.
    pub fn set_checks(&self, release: &ReleaseId, checks: &HealthChecks) {
        self.update_kinds(|states| states.set_checks(release, checks));
    }

    /// Sets whether a release's objects have fingerprints, because they are compared with its package. A change of a fingerprint
    /// is then sent as a change of the release. If no release needed those of its kinds before, their objects are listed again: a
    /// release that starts to use kinds sets it before.
    pub fn set_fingerprinted(&self, release: &ReleaseId, is_fingerprinted: bool) {
        self.update_kinds(|states| states.set_fingerprinted(release, is_fingerprinted));
    }

    /// Returns the fingerprints of objects of a release that has them, in their order. `None` if some of them are not listed
    /// yet.
    pub fn fingerprints(&self, objects: &[ObjectRecord]) -> Option<Vec<Fingerprint>> {
        self.states().fingerprints(objects)
    }

    /// Forgets a release: its objects are not watched because of it any more.
    pub fn forget(&self, release: &ReleaseId) {
        self.update_kinds(|states| states.forget(release));
    }

    /// Returns what is known of an object. A change of it is sent as a change of its release.
    pub fn observation(&self, object: &ObjectRecord) -> Observation {
        let (observation, check_due) = self.states().observation(object, Timestamp::now());
        if check_due {
            self.0.check_due.notify_one();
        }
        observation
    }

    /// Returns whether the objects of a release were listed after a moment. If not, they are listed, and the release is notified.
    pub fn confirm(&self, release: &ReleaseId, after: Timestamp) -> Confirmation {
        let mut confirmation = Confirmation::Pending;
        self.update_kinds(|states| {
            let (result, lists_again) = states.confirm(release, after);
            confirmation = result;
            lists_again
        });
        confirmation
    }

    /// Returns the versions that the watches have come to.
    pub(crate) fn versions(&self) -> WatchedVersions {
        WatchedVersions(self.states().versions())
    }

    /// Takes in the version of a list on the same server that has begun after the watches had come to `versions`. Kinds whose
    /// watches are ahead of it are listed again: the server was restored from a backup.
    pub(crate) fn list_kinds_ahead(&self, versions: WatchedVersions, list_version: &str) {
        self.update_kinds(|states| states.list_kinds_ahead(versions.0, list_version));
    }

    /// Opens the watches, as soon as kinds are in use. Watches that are open with the same kubeconfig stay open. Without a
    /// selector, there are no watches.
    ///
    /// Objects of releases that were not reconciled yet are kept if Chandler manages them.
    pub(crate) fn start(
        &self,
        target: Arc<Target>,
        client: SharedClient,
        selector: &str,
        is_managed: ManagedReleases,
    ) {
        let source = Arc::new(Source::new(&target, selector));
        let new = Session { target, client, source, is_managed };
        let mut session = self.session();
        if session.as_ref().is_some_and(|open| open.equals(&new)) {
            return;
        }
        *session = (!selector.is_empty()).then_some(new);
        self.0.watches_changed.notify_one();
    }

    /// Closes the watches. The last known states stay valid, and the watches continue where they were closed.
    pub(crate) fn pause(&self) {
        if self.session().take().is_some() {
            self.0.watches_changed.notify_one();
        }
    }

    /// Keeps the watches open. They are closed when this is dropped.
    pub(crate) async fn run(self) {
        let mut open = None;
        loop {
            self.update_watches(&mut open);
            self.0.watches_changed.notified().await;
        }
    }

    fn update_watches(&self, open: &mut Option<OpenWatches>) {
        let (wanted, to_list_again) = self.states().watches();
        let Some(session) = self.session().clone().filter(|_| !wanted.is_empty()) else {
            *open = None;
            return;
        };
        // Watches of another session are closed first.
        *open = open.take().filter(|open| Arc::ptr_eq(&open.target, &session.target));
        if open.is_none() {
            *open = self.open(&session);
        }
        let Some(open) = open else { return };
        let reopened: BTreeSet<SharedKind> =
            to_list_again.into_iter().filter(|kind| open.watches.remove(kind).is_some()).collect();
        let changes = watch_changes(open.watches.keys(), &wanted);
        for kind in changes.close {
            open.watches.remove(&kind);
        }
        for kind in changes.open {
            let pause = if reopened.contains(&kind) { LIST_AGAIN_PAUSE } else { Duration::ZERO };
            let watch = KindWatch::new(self.clone(), open.cluster.clone(), kind.clone());
            open.watches.insert(kind, AbortOnDropHandle::new(tokio::spawn(watch.run(pause))));
        }
    }

    fn open(&self, session: &Session) -> Option<OpenWatches> {
        let client = match session.client.create() {
            Ok(client) => client,
            Err(failure) => {
                tracing::warn!(cluster = %self.0.cluster, "objects of releases cannot be watched: {failure}");
                return None;
            }
        };
        let cluster =
            Arc::new(WatchedCluster::new(client, session.source.clone(), session.is_managed.clone()));
        let checks = checks::run(self.clone(), cluster.clone());
        Some(OpenWatches {
            target: session.target.clone(),
            cluster,
            watches: BTreeMap::new(),
            _checks: AbortOnDropHandle::new(tokio::spawn(checks)),
        })
    }

    /// Changes what is watched, if `change` returns `true`.
    fn update_kinds(&self, change: impl FnOnce(&mut States) -> bool) {
        let changed = change(&mut self.states());
        // Less may be kept now. More is kept only by lists and events.
        let _ = self.keep();
        if changed {
            self.0.watches_changed.notify_one();
        }
    }

    /// Changes the states, and notifies the releases that this concerns.
    fn update(&self, change: impl FnOnce(&mut States, Timestamp) -> Vec<ReleaseId>) {
        let mut states = self.states();
        let releases = change(&mut states, Timestamp::now());
        let must_list_again = states.must_list_again();
        drop(states);
        if must_list_again {
            self.0.watches_changed.notify_one();
        }
        for release in releases {
            let change = InventoryChange { cluster: self.0.cluster.clone(), release: Some(release) };
            // The receiver is dropped only while the process ends.
            let _ = self.0.changes.send(change);
        }
    }

    /// Takes in how much memory the states take. Returns an error if that is too much.
    fn keep(&self) -> Result<(), WatchError> {
        let states = self.states();
        Ok(self.kept().set(states.bytes())?)
    }

    /// Takes in that the objects of a kind will take so much memory. Returns an error if that is too much.
    fn keep_listed(&self, kind: &SharedKind, bytes: usize) -> Result<(), WatchError> {
        let states = self.states();
        Ok(self.kept().set(states.bytes_with(kind, bytes))?)
    }

    fn kept(&self) -> MutexGuard<'_, KeptShare> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> MutexGuard<'_, States> {
        self.0.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open watches of a session.
struct OpenWatches {
    target: Arc<Target>,
    cluster: Arc<WatchedCluster>,
    watches: BTreeMap<SharedKind, AbortOnDropHandle<()>>,
    _checks: AbortOnDropHandle<()>,
}
