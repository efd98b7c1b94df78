//! Reconciles a catalog: polls its source if it is due, and updates the status.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{CatalogSource, CatalogStatus, ExtensionCatalog};
use chandler_core::{
    catalog::{PollResult, Selection, location, report, unverifiable},
    conditions,
    digest::Digest,
    failure::{Category, Failure},
    poll::{LastPoll, interval, poll_delay},
    tenancy::SourceUse,
};
use chandler_source::{Access, Catalog, CatalogRequest};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::controller::Action};

use super::{CatalogContext, access::catalog_access, folder::read_folder, is_folder, ready};
use crate::{
    ReconcileError,
    queue::outside_of_limit,
    sources::{CurrentSource, about_folder},
    status,
};

/// The poll interval of a catalog whose `spec.interval` is invalid.
const DEFAULT_INTERVAL: Duration = Duration::from_hours(1);

pub(super) async fn reconcile(
    catalog: Arc<ExtensionCatalog>,
    context: Arc<CatalogContext>,
) -> Result<Action, ReconcileError> {
    let Some(uid) = catalog.uid().filter(|_| catalog.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    // Until then, a Source looks as if it did not exist.
    if is_folder(&catalog) && !outside_of_limit(context.sources.wait_until_listed()).await {
        return Ok(Action::await_change());
    }
    let location = location(&catalog.spec);
    let reconciler = Reconciler { catalog: &catalog, context: &context, uid, location: &location };
    let revision = reconciler.source_revision().await;
    let wait = reconciler.wait(Timestamp::now());
    if !wait.is_zero() && reconciler.has_observed(revision.as_ref()) {
        return Ok(Action::requeue(wait));
    }
    let result = reconciler.poll().await;
    if reconciler.forget_if_deleted() {
        return Ok(Action::await_change());
    }
    let now = Timestamp::now();
    reconciler.update_status(&result, now).await?;
    reconciler.record(&result, revision, now);
    // It may also have been deleted while its status was written.
    if reconciler.forget_if_deleted() {
        return Ok(Action::await_change());
    }
    Ok(Action::requeue(reconciler.wait(now).max(Duration::from_secs(1))))
}

/// Returns what identifies the files of a Source.
fn revision_key(current: &CurrentSource) -> String {
    format!("{} {}", current.revision.commit.id, current.revision.content_key)
}

struct Reconciler<'a> {
    catalog: &'a ExtensionCatalog,
    context: &'a CatalogContext,
    uid: String,
    location: &'a str,
}

impl Reconciler<'_> {
    /// Returns the time until the next poll. Zero means that it is due.
    fn wait(&self, now: Timestamp) -> Duration {
        let last = self.context.polls().get(&self.uid).copied();
        let last = last.or_else(|| self.poll_from_status());
        let every = interval(&self.catalog.spec.interval).unwrap_or(DEFAULT_INTERVAL);
        poll_delay(last.as_ref(), self.catalog.metadata.generation, every, &self.uid, now)
    }

    /// Returns what identifies the files that the Source of the catalog has now. `None` if it is unavailable, or if the catalog
    /// has a URL.
    async fn source_revision(&self) -> Option<String> {
        let source = self.catalog.spec.source.as_ref()?;
        let current = self.context.sources.current(&source.source_ref, &self.namespace()).await.ok()?;
        Some(revision_key(&current))
    }

    /// Returns whether the Source of the catalog had these files at the last poll.
    fn has_observed(&self, revision: Option<&String>) -> bool {
        self.context.observed.lock().get(&self.uid).is_some_and(|observed| observed.as_ref() == revision)
            || !is_folder(self.catalog)
    }

    fn namespace(&self) -> String {
        self.catalog.namespace().unwrap_or_default()
    }

    /// Returns the last successful poll according to the status, if its result is still stored. It may have been by
    /// another process.
    fn poll_from_status(&self) -> Option<LastPoll> {
        let status = self.catalog.status.as_ref()?;
        let is_ready = conditions::is_true(&status.conditions, "Ready");
        let at = status.read_at.as_ref().filter(|_| is_ready)?.0;
        let selection = Selection::new(self.catalog.spec.filter.as_ref()).ok()?;
        self.context.packages.stored_catalog(self.request(&Access::default(), &selection))?;
        Some(LastPoll { generation: status.observed_generation, at, failures: None })
    }

    async fn poll(&self) -> PollResult {
        if let Some(why) = unverifiable(&self.catalog.spec) {
            // Others need no notification: the change of the object that led to this was one.
            self.context.packages.remove_catalog(&self.uid);
            return PollResult::Unverifiable(why);
        }
        match self.read().await {
            Ok(read) => read,
            Err(failure) => PollResult::Failed { kept: self.is_kept(), failure },
        }
    }

    async fn read(&self) -> Result<PollResult, Failure> {
        interval(&self.catalog.spec.interval)?;
        if let Some(source) = &self.catalog.spec.source {
            self.context.sources.check_allowed(&source.source_ref, &self.namespace()).await?;
        } else {
            let source = SourceUse::Url(&self.catalog.spec.url);
            self.context.tenancies.check_source(&self.namespace(), source).await?;
        }
        let selection = Selection::new(self.catalog.spec.filter.as_ref())?;
        let access = catalog_access(&self.context.client, &self.namespace(), &self.catalog.spec).await?;
        let request = self.request(&access, &selection);
        let before = self.context.packages.stored_catalog(request).map(|kept| kept.digest().to_owned());
        let (read, revision) = match &self.catalog.spec.source {
            Some(source) => {
                let (read, revision) = self.read_source(source, request).await?;
                (read, Some(revision))
            }
            None => (outside_of_limit(self.context.packages.read_catalog(request)).await?, None),
        };
        if before.as_deref() != Some(read.digest()) {
            self.context.changes.changed();
            self.context.catalogs.record_change(self.catalog);
        }
        if let Some(revision) = &revision {
            self.context.catalogs.record_revision(self.catalog, revision);
        }
        let digest = Digest::parse(read.digest())
            .ok_or_else(|| Failure::new(Category::Internal, "the stored catalog has no digest"))?;
        Ok(PollResult::Read { packages: read.packages(), digest, revision })
    }

    /// Reads the folder of a Source. Returns the catalog and the revision that was read.
    async fn read_source(
        &self,
        source: &CatalogSource,
        request: CatalogRequest<'_>,
    ) -> Result<(Catalog, String), Failure> {
        let CatalogContext { sources, packages, .. } = self.context;
        let (current, key) = self.current(source).await?;
        if let Some(stored) = self.stored_at(&key, request) {
            return Ok((stored, current.revision.commit.id));
        }
        // Held until the files are no longer needed.
        let _permit = outside_of_limit(self.context.readers.wait(&self.namespace())).await;
        // The Source may have got another revision meanwhile, and the signature policy may have changed.
        let (current, key) = self.current(source).await?;
        if let Some(stored) = self.stored_at(&key, request) {
            return Ok((stored, current.revision.commit.id));
        }
        let tree = sources.files(&current).await?;
        let path = source.path.as_deref();
        let read = outside_of_limit(read_folder(packages, request, current.owner(), &tree, path)).await;
        let read = read.map_err(|failure| about_folder(&current, path.unwrap_or_default(), &failure))?;
        // The Source may have got another revision meanwhile.
        if tree.revision == current.revision.commit.id {
            self.context.read.lock().insert(self.uid.clone(), key);
        } else {
            self.context.read.lock().remove(&self.uid);
        }
        Ok((read, tree.revision.clone()))
    }

    /// Returns the last revision of a Source, if its files may be used, and what identifies them.
    async fn current(&self, source: &CatalogSource) -> Result<(CurrentSource, String), Failure> {
        let current = self.context.sources.current(&source.source_ref, &self.namespace()).await?;
        self.context.packages.check_files(&current.url, current.revision.verified_with.as_deref())?;
        let key = revision_key(&current);
        Ok((current, key))
    }

    /// Returns the stored catalog if it was read at this revision of the Source, so that its files need not be read again.
    fn stored_at(&self, revision: &str, request: CatalogRequest<'_>) -> Option<Catalog> {
        let is_read = self.context.read.lock().get(&self.uid).is_some_and(|read| read == revision);
        is_read.then(|| self.context.packages.stored_catalog(request)).flatten()
    }

    /// If the catalog was deleted meanwhile, removes what was stored since then, and returns `true`.
    fn forget_if_deleted(&self) -> bool {
        let current = self.context.catalogs.get(&self.namespace(), &self.catalog.name_any());
        let is_deleted = current.is_none_or(|current| current.uid().as_ref() != Some(&self.uid));
        if is_deleted {
            self.context.forget(&self.uid);
        }
        is_deleted
    }

    /// Returns whether the packages that the status describes are still offered.
    fn is_kept(&self) -> bool {
        let reported = self.catalog.status.as_ref().and_then(|status| status.digest.as_deref());
        let Ok(selection) = Selection::new(self.catalog.spec.filter.as_ref()) else { return false };
        let kept = self.context.packages.stored_catalog(self.request(&Access::default(), &selection));
        kept.is_some_and(|kept| Some(kept.digest()) == reported)
    }

    fn request<'a>(&'a self, access: &'a Access, selection: &'a Selection) -> CatalogRequest<'a> {
        CatalogRequest { key: &self.uid, url: self.location, access, selection }
    }

    fn record(&self, result: &PollResult, revision: Option<String>, now: Timestamp) {
        self.context.observed.lock().insert(self.uid.clone(), revision);
        let failed = match result {
            PollResult::Read { .. } => None,
            PollResult::Failed { failure, .. } => Some(failure.category),
            PollResult::Unverifiable(_) => Some(Category::InvalidSpec),
        };
        let mut polls = self.context.polls();
        let next = LastPoll::after(polls.get(&self.uid), self.catalog.metadata.generation, failed, now);
        polls.insert(self.uid.clone(), next);
    }

    /// Writes the status if it has changed, and publishes an Event if the condition `Ready` has.
    async fn update_status(&self, result: &PollResult, now: Timestamp) -> Result<(), ReconcileError> {
        let old = self.catalog.status.clone().unwrap_or_default();
        let new = report(&old, result, self.catalog.metadata.generation, now);
        if new == old {
            return Ok(());
        }
        status::write(&self.context.client, self.catalog, &new).await?;
        let state = |status| ready(status).map(|ready| (ready.status.clone(), ready.reason.clone()));
        if state(&new) != state(&old) {
            self.publish(result, &new);
        }
        Ok(())
    }

    fn publish(&self, result: &PollResult, status: &CatalogStatus) {
        let Some(ready) = ready(status) else { return };
        let (namespace, name) = (self.catalog.namespace().unwrap_or_default(), self.catalog.name_any());
        if let PollResult::Read { packages, .. } = result {
            tracing::info!(namespace, name, packages, "catalog read");
            self.context.events.normal(self.catalog, &ready.reason, &format!("{packages} packages"));
        } else {
            tracing::warn!(namespace, name, reason = ready.reason, "catalog: {}", ready.message);
            self.context.events.warning(self.catalog, &ready.reason, &ready.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_source::{NamespaceSemaphore, Packages};
    use kube::runtime::{reflector::store::Writer, watcher::Event};
    use serde_json::json;

    use super::*;
    use crate::{
        catalog::{Catalogs, changes::CatalogChanges},
        events::Events,
        locks::Mutex,
        sources::testing::{listed, offline, packages, source, stored},
    };

    const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";

    /// A catalog that is the root of a Source.
    struct World {
        folder: tempfile::TempDir,
        packages: Arc<Packages>,
        catalog: Arc<ExtensionCatalog>,
        /// The watched catalogs.
        objects: Writer<ExtensionCatalog>,
        context: Arc<CatalogContext>,
    }

    impl World {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let packages = packages(folder.path());
            let catalog: ExtensionCatalog = serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
                "metadata": {"name": "charts", "namespace": "team", "uid": "catalog"},
                "spec": {"source": {"sourceRef": {"name": "fleet"}}},
            }))
            .unwrap();
            let mut objects = Writer::new(());
            objects.apply_watcher_event(&Event::Apply(catalog.clone()));
            let changes = Arc::new(CatalogChanges::default());
            let context = CatalogContext {
                client: offline(),
                packages: packages.clone(),
                events: Events::new(offline()),
                catalogs: Catalogs::new(vec![objects.as_reader()], packages.clone(), changes.sender()),
                changes,
                sources: listed(source("main"), packages.clone()),
                polls: Mutex::default(),
                observed: Mutex::default(),
                read: Mutex::default(),
                tenancies: crate::tenancies::Tenancies::new(offline(), None),
                readers: Arc::new(NamespaceSemaphore::new(1)),
            };
            let (catalog, context) = (Arc::new(catalog), Arc::new(context));
            let world = Self { folder, packages, catalog, objects, context };
            world.push("c1").await;
            world
        }

        async fn push(&self, id: &str) {
            let (revision, tree) = stored(&source("main"), id, &[("web/Chart.yaml", CHART)]);
            self.packages.store_tree("uid", revision, tree).await.unwrap();
        }

        /// Returns the numbers of catalogs in the store and in memory.
        fn known(&self) -> (usize, usize) {
            let stored = std::fs::read_dir(self.folder.path().join("catalogs")).unwrap().count();
            (stored, self.context.read.lock().len())
        }
    }

    #[tokio::test]
    async fn a_catalog_that_has_waited_for_a_slot_reads_the_revision_that_its_source_has_then() {
        let world = World::new().await;
        let location = location(&world.catalog.spec);
        let reconciler = Reconciler {
            catalog: &world.catalog,
            context: &world.context,
            uid: "catalog".to_owned(),
            location: &location,
        };
        let slot = world.context.readers.wait("other").await;
        let push = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.push("c2").await;
            drop(slot);
        };
        let (read, ()) = tokio::join!(reconciler.read(), push);
        let Ok(PollResult::Read { revision, .. }) = &read else { panic!("{read:?}") };
        assert_eq!(revision.as_deref(), Some("c2"));
        let key = world.context.read.lock().get("catalog").cloned();
        assert!(key.as_ref().is_some_and(|key| key.starts_with("c2 ")), "{key:?}");
    }

    #[tokio::test]
    async fn a_catalog_that_is_deleted_while_it_is_read_does_not_come_back() {
        let mut world = World::new().await;
        let offline = reconcile(world.catalog.clone(), world.context.clone()).await;
        assert!(offline.is_err(), "the status cannot be written");
        assert_eq!(world.known(), (1, 1));
        let mut successor = ExtensionCatalog::clone(&world.catalog);
        successor.metadata.uid = Some("successor".to_owned());
        for event in [Event::Apply(successor.clone()), Event::Delete(successor)] {
            world.push("c2").await;
            world.objects.apply_watcher_event(&event);
            let ended = reconcile(world.catalog.clone(), world.context.clone()).await.unwrap();
            assert_eq!((ended, world.known()), (Action::await_change(), (0, 0)));
            assert_eq!(world.context.catalogs.checked_revision(&world.catalog), None);
        }
    }
}
