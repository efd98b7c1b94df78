//! The interface of Sources for other controllers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use chandler_api::extensions::{Scope, Source, SourceRef};
use chandler_core::{
    backoff::needs_user_action,
    catalog::Namespace,
    extension::namespace_of,
    failure::{Category, Failure},
    source::{Origin, PollRequest, content_key, may_use_source},
    tenancy::SourceUse,
};
use chandler_source::{FilesOwner, Packages, SourceTree, StoredRevision};
use jiff::Timestamp;
use kube::{
    Client, ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::watch;

use super::{
    refused::RefusedRevisions,
    requests::{EndedPolls, PollRequests},
    tags::{self, TagKey},
};
use crate::{
    locks::Mutex,
    namespace_labels::NamespaceLabels,
    routing::Router,
    single_flight::SingleFlight,
    tenancies::Tenancies,
    watch::{are_listed, listed},
};

/// The content key of files, and the files.
type CachedTree = (String, Weak<SourceTree>);

/// The watched Sources and the files that were fetched for them. Clones share the data.
#[derive(Clone)]
pub struct Sources {
    pub(super) client: Client,
    /// One store per watched scope.
    objects: Vec<Store<Source>>,
    pub(super) packages: Arc<Packages>,
    platform: Arc<str>,
    labels: NamespaceLabels,
    pub(super) tenancies: Tenancies,
    changes: watch::Sender<u64>,
    /// Files that a caller still has in memory, by uid.
    cached: Arc<Mutex<HashMap<String, CachedTree>>>,
    /// Tags whose revisions cannot be used.
    pub(super) refused: Arc<RefusedRevisions>,
    /// Revisions of tags.
    pub(super) tagged: Arc<SingleFlight<TagKey, StoredRevision>>,
    pub(super) requests: Arc<PollRequests>,
    pub(super) ended_polls: Arc<EndedPolls>,
    /// Reconciles Sources. Those that were only listed are not polled.
    router: Option<Router>,
    /// Shorter intervals of Sources are treated like this one.
    pub(super) min_interval: Duration,
}

/// A Source and its last revision.
pub struct CurrentSource {
    /// Kind, namespace and name, for messages.
    pub named: String,
    pub uid: String,
    /// The address of the repository or artifact.
    pub url: String,
    pub revision: StoredRevision,
}

impl CurrentSource {
    /// Returns whose files they are.
    pub fn owner(&self) -> FilesOwner<'_> {
        FilesOwner { namespace: &self.revision.namespace, url: &self.url }
    }

    fn unavailable(&self, why: &str) -> Failure {
        unavailable(&self.named, why)
    }
}

pub(super) fn unavailable(named: &str, why: &str) -> Failure {
    Failure::new(Category::SourceUnavailable, format!("{named} {why}; see its condition Ready"))
}

fn missing(namespace: &str, name: &str) -> Failure {
    let why = format!("Source {namespace}/{name} does not exist; what was applied from it is left unchanged");
    Failure::new(Category::SourceUnavailable, why)
}

/// Returns whether a namespace cannot use a Source until a user changes something, or creates it.
fn is_lasting(category: Category) -> bool {
    needs_user_action(category) || category == Category::SourceUnavailable
}

impl Sources {
    pub(super) fn new(
        client: Client,
        objects: Vec<Store<Source>>,
        packages: Arc<Packages>,
        platform: &str,
        changes: watch::Sender<u64>,
    ) -> Self {
        Self {
            labels: NamespaceLabels::new(client.clone()),
            tenancies: Tenancies::new(client.clone(), None),
            client,
            objects,
            packages,
            platform: platform.into(),
            changes,
            cached: Arc::default(),
            refused: Arc::default(),
            tagged: Arc::new(SingleFlight::new(tags::CACHED)),
            requests: Arc::default(),
            ended_polls: Arc::default(),
            router: None,
            min_interval: Duration::ZERO,
        }
    }

    /// Creates a cache of Sources that were listed once and are not watched.
    pub fn listed(client: Client, objects: Vec<Source>, packages: Arc<Packages>, platform: &str) -> Self {
        Self::new(client, vec![listed(objects)], packages, platform, watch::Sender::default())
    }

    /// Lets AddonTenancies restrict which Sources namespaces may use.
    #[must_use]
    pub fn under(self, tenancies: Tenancies) -> Self {
        Self { tenancies, ..self }
    }

    /// Checks whether AddonTenancies allow a namespace to use a Source.
    pub async fn check_allowed(&self, reference: &SourceRef, namespace: &str) -> Result<(), Failure> {
        let rules = self.tenancies.of(namespace).await?;
        if rules.allow_everything() {
            return Ok(());
        }
        if reference.scope == Scope::Platform {
            return rules.check_source(SourceUse::PlatformSource { name: &reference.name, catalog: None });
        }
        let source = self.find(namespace, &reference.name);
        let source = source.ok_or_else(|| missing(namespace, &reference.name))?;
        rules.check_source(SourceUse::Url(&Origin::of(&source.spec)?.url()))
    }

    /// Lets a Source be polled because another controller has to know its newest revision.
    pub(super) fn with_router(self, router: Router) -> Self {
        Self { router: Some(router), ..self }
    }

    /// Returns the name of the repository of a Source.
    pub fn repository(&self, reference: &SourceRef, namespace: &str) -> Option<String> {
        let source = self.find(namespace_of(reference.scope, namespace, &self.platform), &reference.name)?;
        Origin::of(&source.spec).ok().map(Origin::repository_name)
    }

    /// Polls a Source that a namespace may use, and waits until its newest revision is known. Returns
    /// `false` if it cannot be polled: it is suspended, or does not exist.
    pub async fn poll(&self, reference: &SourceRef, namespace: &str) -> Result<bool, Failure> {
        let Some(router) = &self.router else { return Ok(false) };
        let found = match self.check_allowed(reference, namespace).await {
            Ok(()) => self.get(reference, namespace).await,
            Err(failure) => Err(failure),
        };
        let source = match found {
            Ok(source) => source,
            Err(failure) if is_lasting(failure.category) => return Ok(false),
            Err(failure) => return Err(failure),
        };
        if source.metadata.deletion_timestamp.is_some() || source.spec.suspend {
            return Ok(false);
        }
        let (uid, now) = (source.uid().unwrap_or_default(), Instant::now());
        self.requests.add_if_none(&uid, PollRequest::of_deletion(Timestamp::now()));
        router.enqueue_source(&source);
        match self.ended_polls.since(&uid, now).await.failure {
            None => Ok(true),
            Some(failure) => {
                let named = format!("{}/{}", source.namespace().unwrap_or_default(), source.name_any());
                let why = format!("Source {named} cannot be read: {}", failure.message);
                Err(Failure::new(Category::SourceUnavailable, why))
            }
        }
    }

    pub(super) fn with_min_interval(self, min_interval: Duration) -> Self {
        Self { min_interval, ..self }
    }

    /// Returns the files of the last revision of a Source that `namespace` may use. A revision is verified before it is
    /// stored. A Source whose current spec has not been fetched yet is a failure.
    pub async fn tree(&self, reference: &SourceRef, namespace: &str) -> Result<Arc<SourceTree>, Failure> {
        let current = self.current(reference, namespace).await?;
        self.files(&current).await
    }

    /// Returns the last revision of a Source that `namespace` may use, without its files.
    pub async fn current(&self, reference: &SourceRef, namespace: &str) -> Result<CurrentSource, Failure> {
        let source = self.get(reference, namespace).await?;
        let named = format!("Source {}/{}", source.namespace().unwrap_or_default(), source.name_any());
        let uid = source.uid().unwrap_or_default();
        let wanted = content_key(&source.spec);
        let stored = self.packages.stored_revision(&uid);
        let stored = stored.filter(|stored| stored.content_key == wanted.as_str());
        let revision = stored.ok_or_else(|| unavailable(&named, "has not been fetched yet"))?;
        let url = Origin::of(&source.spec)?.url();
        Ok(CurrentSource { named, uid, url, revision })
    }

    /// Returns the files of a Source. They may be those of a newer revision, if it was fetched meanwhile.
    pub async fn files(&self, current: &CurrentSource) -> Result<Arc<SourceTree>, Failure> {
        let CurrentSource { uid, revision, .. } = current;
        if let Some(cached) = self.cached(uid, revision) {
            return Ok(cached);
        }
        let read = self.packages.stored_tree(uid).await?;
        let read = read.filter(|(stored, _)| stored.content_key == revision.content_key);
        let (stored, tree) = read.ok_or_else(|| current.unavailable("has files that cannot be read"))?;
        let tree = Arc::new(tree);
        let mut all = self.cached.lock();
        all.retain(|_, (_, tree)| tree.strong_count() > 0);
        all.insert(uid.clone(), (stored.content_key, Arc::downgrade(&tree)));
        Ok(tree)
    }

    /// Returns the files of this revision of a Source if a caller still has them in memory.
    fn cached(&self, uid: &str, revision: &StoredRevision) -> Option<Arc<SourceTree>> {
        let all = self.cached.lock();
        let (_, tree) = all.get(uid).filter(|(content_key, _)| *content_key == revision.content_key)?;
        tree.upgrade().filter(|tree| tree.revision == revision.commit.id)
    }

    /// Returns the Source that an object of `namespace` refers to, if that namespace may use it.
    pub(super) async fn get(&self, reference: &SourceRef, namespace: &str) -> Result<Arc<Source>, Failure> {
        let home = namespace_of(reference.scope, namespace, &self.platform);
        let found = self.find(home, &reference.name).ok_or_else(|| missing(home, &reference.name))?;
        let labels = self.labels(&found, namespace).await?;
        let platform: &str = &self.platform;
        may_use_source(&found, Some(platform), Namespace { name: namespace, labels: &labels })?;
        Ok(found)
    }

    /// Returns a Source, without checking who may use it.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Source>> {
        let object = ObjectRef::new(name).within(namespace);
        self.objects.iter().find_map(|objects| objects.get(&object))
    }

    /// Returns the Sources of a namespace.
    pub(super) fn all(&self, namespace: &str) -> Vec<Arc<Source>> {
        let is_there = |source: &Source| source.metadata.namespace.as_deref() == Some(namespace);
        self.objects.iter().flat_map(|objects| objects.state_filter(is_there)).collect()
    }

    /// Returns the labels of a namespace, if the Source selects by them.
    async fn labels(
        &self,
        source: &Source,
        namespace: &str,
    ) -> Result<Arc<BTreeMap<String, String>>, Failure> {
        if source.spec.namespaces.is_none() || source.namespace().as_deref() == Some(namespace) {
            return Ok(Arc::default());
        }
        self.labels.get(namespace).await
    }

    /// Returns how often something has changed.
    pub(super) fn changes_so_far(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Returns a receiver that is notified when a revision was fetched, tags have changed, or a Source was deleted.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until the first list of each watch is complete. Returns `false` if a watch has ended.
    pub async fn wait_until_listed(&self) -> bool {
        are_listed(&self.objects).await
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::Scope;
    use kube::runtime::{reflector::store::Writer, watcher::Event};

    use super::*;
    use crate::sources::testing::{offline, packages, source, stored};

    #[tokio::test]
    async fn only_files_of_the_current_spec_are_returned_to_namespaces_that_may_use_them() {
        let folder = tempfile::tempdir().unwrap();
        let packages = packages(folder.path());
        let mut objects = Writer::new(());
        let (stores, changes) = (vec![objects.as_reader()], watch::Sender::default());
        let sources = Sources::new(offline(), stores, packages.clone(), "platform", changes);
        let reference = SourceRef { name: "fleet".to_owned(), scope: Scope::Namespace };
        let missing = sources.tree(&reference, "team").await.unwrap_err();
        assert_eq!(missing.category, Category::SourceUnavailable);

        objects.apply_watcher_event(&Event::Apply(source("main")));
        let unfetched = sources.tree(&reference, "team").await.unwrap_err();
        assert_eq!(unfetched.category, Category::SourceUnavailable);
        assert!(unfetched.message.contains("team/fleet has not been fetched yet"), "{unfetched}");

        for id in ["c1", "c2"] {
            let (revision, tree) = stored(&source("main"), id, &[]);
            packages.store_tree("uid", revision, tree).await.unwrap();
            let first = sources.tree(&reference, "team").await.unwrap();
            assert_eq!(first.revision, id);
            assert!(Arc::ptr_eq(&first, &sources.tree(&reference, "team").await.unwrap()), "shared");
        }
        let platform = SourceRef { name: "fleet".to_owned(), scope: Scope::Platform };
        let elsewhere = sources.tree(&platform, "team").await.unwrap_err();
        assert!(elsewhere.message.contains("Source platform/fleet does not exist"), "{elsewhere}");

        objects.apply_watcher_event(&Event::Apply(source("next")));
        let unfetched = sources.tree(&reference, "team").await.unwrap_err();
        assert!(unfetched.message.contains("has not been fetched yet"), "{unfetched}");
    }

    #[tokio::test]
    async fn files_of_another_spec_ignore_are_not_shared() {
        let folder = tempfile::tempdir().unwrap();
        let packages = packages(folder.path());
        let mut objects = Writer::new(());
        let (stores, changes) = (vec![objects.as_reader()], watch::Sender::default());
        let sources = Sources::new(offline(), stores, packages.clone(), "platform", changes);
        let reference = SourceRef { name: "fleet".to_owned(), scope: Scope::Namespace };
        let all = [("a.yaml", "a: 1"), ("docs", "text")];
        let mut held = Vec::new();
        for (ignore, files) in [("none", &all[..]), ("docs", &all[..1])] {
            let mut object = source("main");
            object.spec.ignore = vec![ignore.to_owned()];
            let (revision, tree) = stored(&object, "c1", files);
            objects.apply_watcher_event(&Event::Apply(object));
            packages.store_tree("uid", revision, tree).await.unwrap();
            let tree = sources.tree(&reference, "team").await.unwrap();
            assert_eq!(tree.files.len(), files.len(), "{ignore}");
            held.push(tree);
        }
    }
}
