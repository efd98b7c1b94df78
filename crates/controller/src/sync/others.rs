//! Finds out which objects other Syncs want, by rendering their directories. Nothing is written.

mod polls;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use chandler_api::extensions::{HeldObject, SyncObject, SyncStatus, SyncedObject};
use chandler_core::{
    failure::{Category, Failure},
    sync::{
        Claims, Contents, Directory, Document, Live, ObjectId, OtherSync, Ownership, Scope as ObjectScope,
        SourceKey, SyncDirectory, Want, contents, is_emptied, is_handed_over, is_stopped, kept_for, kinds,
        may_contain, named, ownership, state_of,
    },
    tenancy::ObjectOfSync,
};
use chandler_source::SourceTree;
use futures::future::join_all;
use kube::api::ApiResource;
use tokio::time::Instant;

pub use self::polls::Polled;
use super::{
    SyncContext, claim_of,
    impersonated_client::ImpersonatedClient,
    render::folder_files,
    served_kinds::{FoundKinds, ServedKind, kind_of},
};
use crate::{locks::Mutex, queue::outside_of_limit};

/// Deadline of reading a Source.
const TREE_LIMIT: Duration = Duration::from_mins(1);
/// The largest number of directories that a Sync compares with what it deletes.
const MAX_DIRECTORIES: usize = 1000;

/// The contents of the directories of Syncs at the last revision at which they were rendered.
#[derive(Debug, Default)]
pub struct Directories(Mutex<HashMap<Directory, Known>>);

#[derive(Clone, Debug)]
struct Known {
    revision: String,
    contents: Arc<Contents>,
}

impl Directories {
    fn get(&self, directory: &Directory) -> Option<Known> {
        self.0.lock().get(directory).cloned()
    }

    /// Records contents, and forgets those of directories that no Sync has.
    fn record(
        &self,
        directory: Directory,
        revision: &str,
        contents: Contents,
        of_syncs: &HashSet<Directory>,
    ) {
        let known = Known { revision: revision.to_owned(), contents: Arc::new(contents) };
        let mut all = self.0.lock();
        all.retain(|other, _| of_syncs.contains(other));
        all.insert(directory, known);
    }
}

/// An object that is no longer in the directory of its Sync.
pub struct Gone<'a> {
    pub id: ObjectId,
    /// Its kind, if the API server serves it.
    pub kind: Option<&'a ServedKind>,
}

impl<'a> Gone<'a> {
    pub fn new(object: &SyncedObject, kinds: &'a FoundKinds) -> Self {
        Self { id: ObjectId::from(object), kind: kinds.get(&kind_of(object)).map(Arc::as_ref) }
    }
}

/// Another Sync that may want objects.
struct Candidate {
    by: SyncDirectory,
    /// `None` for a Sync that another Sync creates or changes.
    sync: Option<Arc<SyncObject>>,
    /// The Sync that creates or changes it.
    creator: Option<SyncDirectory>,
}

impl Candidate {
    fn name(&self) -> String {
        format!("{}/{}", self.by.namespace, self.by.name)
    }

    /// Returns a Sync that the directory of this one contains.
    fn creates(&self, by: &SyncDirectory) -> Self {
        Self { by: by.clone(), sync: None, creator: Some(self.by.clone()) }
    }

    /// Returns the Sync that creates it if users of neither namespace control that one.
    fn stranger(&self, own: &Directory) -> Option<&SyncDirectory> {
        let is_stranger =
            |creator: &&SyncDirectory| ![&own.namespace, &self.by.namespace].contains(&&creator.namespace);
        self.creator.as_ref().filter(is_stranger)
    }

    fn other(&self, want: Want) -> OtherSync {
        let state = match &self.sync {
            Some(sync) => state_of(sync),
            None => Some("another Sync creates or changes it".to_owned()),
        };
        OtherSync { sync: self.name(), want, state }
    }
}

/// What is known about the directory of another Sync.
struct Found {
    /// What it contains, or what the Sync has recorded if it cannot be rendered.
    contents: Arc<Contents>,
    /// The objects that it may contain, too.
    unknown: Vec<ObjectId>,
    is_rendered: bool,
}

impl Found {
    fn rendered(contents: Arc<Contents>) -> Self {
        Self { contents, unknown: Vec::new(), is_rendered: true }
    }

    /// What cannot be read may contain all objects.
    fn unread(candidate: &Candidate, gone: &[Gone<'_>]) -> Self {
        Self::recorded(candidate, gone.iter().map(|gone| gone.id.clone()).collect())
    }

    fn recorded(candidate: &Candidate, unknown: Vec<ObjectId>) -> Self {
        let objects = candidate.sync.as_ref().map(|sync| claim_of(sync).objects).unwrap_or_default();
        let contents = Arc::new(Contents { objects, syncs: Vec::new() });
        Self { contents, unknown, is_rendered: false }
    }
}

/// What other Syncs want.
#[derive(Default)]
pub struct Wanted {
    pub objects: BTreeMap<ObjectId, OtherSync>,
    /// The Sources that have to be polled before it is known, with a directory of each.
    unpolled: BTreeMap<SourceKey, Directory>,
}

impl Wanted {
    fn add(&mut self, id: &ObjectId, other: OtherSync) {
        let entry = self.objects.entry(id.clone()).or_insert_with(|| other.clone());
        if entry.want < other.want {
            *entry = other;
        }
    }
}

impl SyncContext {
    /// Records what the directory of a Sync contains.
    pub(super) async fn record_contents(
        &self,
        directory: Directory,
        revision: &str,
        documents: &[Document],
    ) -> Result<Arc<Contents>, Failure> {
        let served = self.kinds.find(kinds(documents)).await?;
        let found = contents(documents, &directory.namespace, |kind| served.get(kind).map(|kind| kind.scope));
        let of_syncs = self.store.state().iter().map(|sync| Directory::of(sync)).collect();
        let recorded = Arc::new(found.clone());
        self.directories.record(directory, revision, found, &of_syncs);
        Ok(recorded)
    }

    /// Returns which of the objects that `sync` would delete other Syncs want. `tree` has the files of
    /// the revision that it applies.
    ///
    /// The directories of Syncs in the same namespace or of the same Source are rendered, also if those
    /// Syncs are suspended or fail. Of others, only what they have recorded counts, and only if they may
    /// write the object: otherwise a tenant could keep the objects of another one.
    ///
    /// With `polled`, directories whose newest revision is not known may contain all objects.
    pub(super) async fn wanted_by_others(
        &self,
        sync: &SyncObject,
        tree: Option<&SourceTree>,
        gone: &[Gone<'_>],
        polled: Option<&Polled>,
    ) -> Result<Wanted, Failure> {
        let mut wanted = Wanted::default();
        if gone.is_empty() {
            return Ok(wanted);
        }
        let own = Directory::of(sync);
        let read = if tree.is_none() { self.tree(&own).await.ok() } else { None };
        let own_tree = tree.or(read.as_deref());
        let syncs = polled.and_then(|polled| polled.syncs.as_deref());
        let (mut queue, mut seen) = (self.candidates(sync, syncs), HashSet::new());
        let (mut rendered, mut strangers) = (HashMap::new(), HashMap::new());
        while let Some(candidate) = queue.pop_front() {
            let directory = &candidate.by.directory;
            // Another Sync may give this one another directory.
            let is_self = candidate.name() == named(sync) && *directory == own;
            if is_self || seen.contains(&candidate.by) {
                continue;
            }
            if let Some(creator) = candidate.stranger(&own)
                && !self.may_create(creator, &candidate.by, &mut strangers).await?
            {
                continue;
            }
            seen.insert(candidate.by.clone());
            let is_own = directory.namespace == own.namespace;
            let has_own_source = directory.has_source_of(&own, &self.platform);
            if !is_own && !has_own_source {
                for object in self.wanted_by_foreign(&candidate, gone).await? {
                    wanted.add(&object, candidate.other(Want::Foreign));
                }
                continue;
            }
            // The Syncs of one namespace must not use up what the others may have.
            let rendered = rendered.entry(is_own).or_insert(0);
            *rendered += 1;
            let is_within_limit = *rendered <= MAX_DIRECTORIES;
            let want = if is_own { Want::Own } else { Want::Foreign };
            let read = if has_own_source { None } else { self.tree(directory).await.ok() };
            let other_tree = if has_own_source { own_tree } else { read.as_deref() };
            let key = directory.source_key(&self.platform);
            let needs_poll = other_tree.is_none() || self.needs_poll(directory, &own, tree.is_some());
            let polled = polled.filter(|_| needs_poll);
            if polled.is_some_and(|polled| !polled.contains(&key)) {
                // A namespace that may not use the own Source must not decide about it.
                let by = if has_own_source { &own } else { directory };
                wanted.unpolled.entry(key.clone()).or_insert_with(|| by.clone());
            }
            let outdated = polled.and_then(|polled| polled.unknown(&key));
            let is_known = is_within_limit && outdated.is_none();
            let found = match other_tree.filter(|_| is_known) {
                Some(other_tree) => self.find_contents(&candidate, other_tree, has_own_source, gone).await,
                None => Found::unread(&candidate, gone),
            };
            let contained = gone.iter().map(|gone| &gone.id);
            let contained = contained.filter(|id| found.contents.objects.contains(*id)).map(|id| (id, want));
            let unknown = found.unknown.iter().map(|id| (id, Want::Unknown));
            for (id, want) in contained.chain(unknown).collect::<Vec<_>>() {
                if is_own || self.is_allowed(&directory.namespace, id).await {
                    let other = candidate.other(want);
                    wanted.add(id, OtherSync { state: outdated.clone().or(other.state), ..other });
                }
            }
            queue.extend(found.contents.syncs.iter().map(|by| candidate.creates(by)));
        }
        Ok(wanted)
    }

    /// Returns whether a Sync may create another one in another namespace. Otherwise a tenant could keep the objects of
    /// another one with a file. Asks the API server once for each account and namespace.
    async fn may_create(
        &self,
        creator: &SyncDirectory,
        created: &SyncDirectory,
        known: &mut HashMap<[String; 3], bool>,
    ) -> Result<bool, Failure> {
        let resource = ApiResource::erase::<SyncObject>(&());
        let id = ObjectId::new(&resource.api_version, &resource.kind, &created.namespace, &created.name);
        if !self.is_allowed(&creator.namespace, &id).await {
            return Ok(false);
        }
        let key = [&creator.namespace, &creator.account, &created.namespace].map(Clone::clone);
        if let Some(known) = known.get(&key) {
            return Ok(*known);
        }
        let kind = ServedKind { resource, scope: ObjectScope::Namespaced };
        let may_create = self.account_of(creator).may_write(kind.location(&id)).await?;
        known.insert(key, may_create);
        Ok(may_create)
    }

    fn account_of(&self, sync: &SyncDirectory) -> ImpersonatedClient {
        ImpersonatedClient {
            client: self.client.clone(),
            namespace: sync.namespace.clone(),
            name: sync.account.clone(),
            limit: self.limit.clone(),
        }
    }

    /// Returns the other Syncs, older ones first, and those that this one creates. `listed` are those that the API
    /// server has just listed, if it was asked.
    fn candidates(&self, sync: &SyncObject, listed: Option<&[Arc<SyncObject>]>) -> VecDeque<Candidate> {
        let mut others = listed.map_or_else(|| self.store.state(), <[_]>::to_vec);
        others.retain(|other| other.metadata.deletion_timestamp.is_none());
        others.sort_by_key(|other| (other.metadata.creation_timestamp.as_ref().map(|at| at.0), named(other)));
        let existing = others.into_iter().map(|other| {
            let by = SyncDirectory::of(&other);
            Candidate { by, sync: Some(Arc::new(self.written.newest(&other))), creator: None }
        });
        let own = self.directories.get(&Directory::of(sync));
        let created = own.iter().flat_map(|known| known.contents.syncs.iter().cloned());
        let creator = SyncDirectory::of(sync);
        let created = created.map(|by| Candidate { by, sync: None, creator: Some(creator.clone()) });
        existing.chain(created).collect()
    }

    /// Returns what a directory contains. If it cannot be rendered, what its Sync has recorded counts. Only if
    /// `tree` is that of the own Source, a directory without files shows that the same commit has moved them.
    async fn find_contents(
        &self,
        candidate: &Candidate,
        tree: &SourceTree,
        is_same_commit: bool,
        gone: &[Gone<'_>],
    ) -> Found {
        let directory = &candidate.by.directory;
        if let Some(known) = self.directories.get(directory).filter(|known| known.revision == tree.revision) {
            return Found::rendered(known.contents);
        }
        if let Ok(documents) = self.render.render(tree, &directory.path).await {
            let contents = self.record_contents(directory.clone(), &tree.revision, &documents).await;
            return contents.map_or_else(|_| Found::unread(candidate, gone), Found::rendered);
        }
        // A directory that does not exist contains nothing.
        let files = folder_files(tree, &directory.path).unwrap_or_default();
        if is_same_commit && candidate.sync.as_ref().is_some_and(|sync| is_emptied(sync, &files)) {
            return Found::rendered(Arc::default());
        }
        let unknown = gone.iter().filter(|gone| may_contain(&files, &gone.id.name));
        Found::recorded(candidate, unknown.map(|gone| gone.id.clone()).collect())
    }

    /// Returns the objects that the directory of a Sync contains at a revision.
    pub(super) async fn objects_in(
        &self,
        directory: &Directory,
        tree: &SourceTree,
    ) -> Result<BTreeSet<ObjectId>, Failure> {
        let documents = self.render.render(tree, &directory.path).await?;
        let contents = self.record_contents(directory.clone(), &tree.revision, &documents).await?;
        Ok(contents.objects.clone())
    }

    /// Reads the Source of another Sync. If it may be of the same repository as the own one, both are polled: one of
    /// them may not have seen the commit that moves an object.
    async fn newest_tree(&self, directory: &Directory, own: &Directory) -> Option<Arc<SourceTree>> {
        if self.needs_poll(directory, own, true) {
            let polls = [directory, own].map(|directory| async move {
                let poll = self.trees.poll(&directory.source, &directory.namespace);
                by_deadline(Instant::now() + TREE_LIMIT, directory, poll).await
            });
            // Without an answer, what was read last counts.
            let _ = outside_of_limit(join_all(polls)).await;
        }
        self.tree(directory).await.ok()
    }

    /// Reads a Source.
    pub(super) async fn tree(&self, directory: &Directory) -> Result<Arc<SourceTree>, Failure> {
        let read = self.trees.tree(&directory.source, &directory.namespace);
        by_deadline(Instant::now() + TREE_LIMIT, directory, read).await
    }

    /// Returns the objects that a Sync of another namespace and another Source wants and may write.
    async fn wanted_by_foreign(
        &self,
        candidate: &Candidate,
        gone: &[Gone<'_>],
    ) -> Result<Vec<ObjectId>, Failure> {
        let Some(sync) = &candidate.sync else { return Ok(Vec::new()) };
        let known = self.directories.get(&candidate.by.directory);
        let (recorded, mut wanted) = (claim_of(sync).objects, Vec::new());
        for Gone { id, kind } in gone {
            let contains = known.as_ref().is_some_and(|known| known.contents.objects.contains(id));
            if !contains && !recorded.contains(id) {
                continue;
            }
            let impersonated = self.account_of(&candidate.by);
            let Some(kind) = kind else { continue };
            if self.is_allowed(&candidate.by.namespace, id).await
                && impersonated.may_write(kind.location(id)).await?
            {
                wanted.push(id.clone());
            }
        }
        Ok(wanted)
    }

    /// Returns whether AddonTenancies allow Syncs of a namespace to write an object, or cannot be read.
    async fn is_allowed(&self, namespace: &str, id: &ObjectId) -> bool {
        let ObjectId { group, kind, namespace: of, name } = id;
        let object = ObjectOfSync { group, kind, namespace: of, name };
        match self.tenancies.of(namespace).await {
            Ok(rules) => rules.check_synced(namespace, object).is_ok(),
            Err(_) => true,
        }
    }

    /// Returns what the watched Syncs own. The Syncs that own `objects` may not have read the revision
    /// yet that moves them to `sync`: what their directories contain at that revision counts.
    pub(super) async fn claims_at(
        &self,
        sync: &SyncObject,
        tree: &SourceTree,
        objects: &[(&ObjectId, Live<'_>)],
    ) -> Result<Claims, Failure> {
        let (mut claims, own) = (self.claims(), claim_of(sync));
        let taken = objects.iter().filter(|(id, live)| {
            matches!(ownership(id, live.owner(), &own, &claims), Ownership::Taken { .. })
        });
        let owners: BTreeSet<_> = taken.filter_map(|(_, live)| live.owner()).collect();
        let directory = Directory::of(sync);
        for owner in self.store.state() {
            let label = claim_of(&owner).label();
            let theirs = Directory::of(&owner);
            let same_source = theirs.has_source_of(&directory, &self.platform);
            let is_near = same_source || theirs.namespace == directory.namespace;
            let owner = Arc::new(self.written.newest(&owner));
            if !owners.contains(&*label) || !is_near || is_stopped(&owner) {
                continue;
            }
            let by = SyncDirectory { directory: theirs, ..SyncDirectory::of(&owner) };
            let candidate = Candidate { by, sync: Some(owner), creator: None };
            let read =
                if same_source { None } else { self.newest_tree(&candidate.by.directory, &directory).await };
            let Some(their_tree) = read.as_deref().or(same_source.then_some(tree)) else { continue };
            // A commit is named by its content, so equal ones are of the same repository.
            let is_same_commit = their_tree.revision == tree.revision;
            let found = self.find_contents(&candidate, their_tree, is_same_commit, &[]).await;
            if found.is_rendered {
                claims.limit(&label, &found.contents.objects);
            }
        }
        Ok(claims)
    }

    /// Returns whether other Syncs have taken over objects since they were read.
    pub(super) fn has_handed_over(&self, held: &[HeldObject]) -> bool {
        let receivers: HashSet<_> = held.iter().map(|held| held.sync.as_str()).collect();
        let is_receiver = |sync: &SyncObject| receivers.contains(&*named(sync));
        let found = self.store.state_filter(is_receiver);
        found.iter().any(|sync| {
            // The watch may be ahead of what was written.
            let is_handed_over = |status: &SyncStatus| is_handed_over(held, &named(sync), status);
            sync.status.as_ref().is_some_and(is_handed_over) || self.written.read(sync, is_handed_over)
        })
    }

    /// Returns the objects that other Syncs keep for this one, and those Syncs.
    pub(super) fn kept_for(&self, sync: &SyncObject) -> Vec<(ObjectId, String)> {
        let name = named(sync);
        let mut kept = Vec::new();
        for other in self.store.state_filter(|other| other.metadata.uid != sync.metadata.uid) {
            let by = named(&other);
            self.written.read(&other, |status| {
                kept.extend(kept_for(&name, &status.held).map(|id| (id, by.clone())));
            });
        }
        kept.sort();
        kept
    }
}

async fn by_deadline<T>(
    deadline: Instant,
    directory: &Directory,
    read: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout_at(deadline, read).await.unwrap_or_else(|_| {
        let message = format!("Source {} could not be read within {TREE_LIMIT:?}", directory.source.name);
        Err(Failure::new(Category::Timeout, message))
    })
}
