//! What other Syncs want: the objects in their directories. A Sync does not delete them.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{GROUP, HeldObject, Reference, SyncObject, SyncSource, SyncStatus};
use kube_core::GroupVersionKind;
use serde_json::Value;

use super::{
    Document, HeldReason, MoveSuspension, ObjectId, PruneInput, Scope, move_suspension, own_move,
    resolve::kind_of,
};
use crate::{
    conditions,
    extension::namespace_of,
    source::{Content, content_of, has_content, is_manifest},
};

/// Number of objects that the message of a waiting Sync lists.
const LISTED: usize = 3;

/// Namespace and name of a Source.
pub type SourceKey = (String, String);

/// The directory of a Sync.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Directory {
    /// The namespace of the Sync. Objects without a namespace get it.
    pub namespace: String,
    pub source: Reference,
    pub path: String,
}

impl Directory {
    pub fn new(namespace: &str, source: &SyncSource) -> Self {
        Self {
            namespace: namespace.to_owned(),
            source: source.source_ref.clone(),
            path: source.path.trim_matches('/').to_owned(),
        }
    }

    pub fn of(sync: &SyncObject) -> Self {
        Self::new(sync.metadata.namespace.as_deref().unwrap_or_default(), &sync.spec.source)
    }

    /// Returns whether two directories are of the same Source.
    pub fn has_source_of(&self, other: &Self, platform: &str) -> bool {
        self.source_key(platform) == other.source_key(platform)
    }

    /// Returns namespace and name of the Source.
    pub fn source_key(&self, platform: &str) -> SourceKey {
        let namespace = namespace_of(self.source.scope, &self.namespace, platform).to_owned();
        (namespace, self.source.name.clone())
    }
}

/// A Sync and its directory, by the manifest of the Sync.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SyncDirectory {
    pub namespace: String,
    pub name: String,
    /// The ServiceAccount as which it writes.
    pub account: String,
    pub directory: Directory,
}

impl SyncDirectory {
    pub fn of(sync: &SyncObject) -> Self {
        Self {
            namespace: sync.metadata.namespace.clone().unwrap_or_default(),
            name: sync.metadata.name.clone().unwrap_or_default(),
            account: sync.spec.service_account_name.clone(),
            directory: Directory::of(sync),
        }
    }
}

/// What a directory contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub objects: BTreeSet<ObjectId>,
    /// The Syncs among the objects. They may not exist yet, or still have another directory.
    pub syncs: Vec<SyncDirectory>,
}

/// Returns what a directory contains. `namespace` is that of its Sync. The scope of a kind that is
/// not served is unknown, so its objects are listed with and without a namespace.
pub fn contents(
    documents: &[Document],
    namespace: &str,
    served: impl Fn(&GroupVersionKind) -> Option<Scope>,
) -> Contents {
    let mut contents = Contents::default();
    for document in documents {
        let text = |pointer| document.text(pointer);
        let own = Some(text("/metadata/namespace")).filter(|own| !own.is_empty()).unwrap_or(namespace);
        let scope = kind_of(document).and_then(|kind| served(&kind));
        let id =
            |namespace| ObjectId::new(text("/apiVersion"), text("/kind"), namespace, text("/metadata/name"));
        if scope != Some(Scope::Cluster) {
            contents.objects.insert(id(own));
        }
        if scope != Some(Scope::Namespaced) {
            contents.objects.insert(id(""));
        }
        contents.syncs.extend(sync_directory(&document.object, &id(own)));
    }
    contents
}

fn sync_directory(object: &Value, id: &ObjectId) -> Option<SyncDirectory> {
    if id.group != GROUP || id.kind != "Sync" {
        return None;
    }
    let source: SyncSource = serde_json::from_value(object.pointer("/spec/source")?.clone()).ok()?;
    let directory = Directory::new(&id.namespace, &source);
    let account = object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (id.namespace.clone(), id.name.clone());
    Some(SyncDirectory { namespace, name, account: account.to_owned(), directory })
}

/// Returns whether a directory that cannot be rendered may contain an object with this name. A
/// kustomization can make any name, and another Sync can have a directory with it; in other files a
/// name is text, unless the file escapes it.
pub fn may_contain<B: AsRef<[u8]>>(files: &BTreeMap<String, B>, name: &str) -> bool {
    const SYNC: &str = "Sync";
    if !has_content(files.keys().map(String::as_str)) {
        return false;
    }
    if content_of(files.keys().map(String::as_str)) != Ok(Content::Manifests) {
        return true;
    }
    let mut texts = files
        .iter()
        .filter(|(file, _)| is_manifest(file))
        .map(|(_, content)| String::from_utf8_lossy(content.as_ref()));
    texts.any(|text| text.contains(name) || text.contains(SYNC) || text.contains('\\'))
}

/// Returns whether a commit has moved or removed all files of the directory of a Sync. A path that the
/// Sync has never applied may be a mistake.
pub fn is_emptied<B>(sync: &SyncObject, files: &BTreeMap<String, B>) -> bool {
    let applied = sync.status.as_ref().filter(|status| status.last_applied.is_some());
    let is_same = applied.is_some_and(|status| !PruneInput::is_source_changed(sync, status));
    is_same && !has_content(files.keys().map(String::as_str))
}

/// What is known about an object and the directory of another Sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// The directory may contain the object: it cannot be rendered, or its newest revision is not known.
    Unknown,
    /// The directory contains the object. The Sync is in another namespace, so its users may be others.
    Foreign,
    /// The directory contains the object, and the Sync is in the same namespace.
    Own,
}

/// A Sync that an object is kept for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherSync {
    /// Its namespace and name.
    pub sync: String,
    pub want: Want,
    /// Why it has not taken the object over, if it is known.
    pub state: Option<String>,
}

impl OtherSync {
    pub fn reason(&self) -> HeldReason {
        match self.want {
            Want::Unknown => HeldReason::SyncNotRendered,
            Want::Foreign | Want::Own => HeldReason::WantedBySync,
        }
    }

    /// Returns whether a confirmed deletion has precedence. Otherwise a Sync that others control, or
    /// that stays broken, could keep objects forever.
    pub(super) fn yields_to_confirmation(&self) -> bool {
        self.want != Want::Own
    }

    pub fn message(&self) -> String {
        let Self { sync, want, state } = self;
        let state = state.as_ref().map(|state| format!(" ({state})")).unwrap_or_default();
        match want {
            Want::Unknown => {
                format!("it is not known whether the directory of Sync {sync}{state} contains it")
            }
            Want::Foreign | Want::Own => {
                format!("the directory of Sync {sync}{state} contains it, and that Sync takes it over")
            }
        }
    }
}

/// Returns why a Sync may not take over objects now, for the message of another Sync.
pub fn state_of(sync: &SyncObject) -> Option<String> {
    let conditions = sync.status.as_ref().map(|status| &status.conditions);
    let ready = conditions.and_then(|all| conditions::find(all, "Ready"))?;
    (ready.status == "False").then(|| ready.reason.clone())
}

/// Returns whether a Sync neither writes nor deletes objects, whatever its directory contains.
pub fn is_stopped(sync: &SyncObject) -> bool {
    sync.spec.suspend
        || sync.metadata.deletion_timestamp.is_some()
        || own_move(sync).is_some()
        || move_suspension(sync) == MoveSuspension::Suspended
}

/// Returns the objects that another Sync holds for this one.
pub fn kept_for<'a>(sync: &'a str, held: &'a [HeldObject]) -> impl Iterator<Item = ObjectId> + 'a {
    let wanted = HeldReason::WantedBySync.as_str();
    held.iter().filter(move |held| held.sync == sync && held.reason == wanted).map(ObjectId::from)
}

/// Returns whether a Sync has taken over objects that `giver` still holds for it. It did so while `giver`
/// was applied, and no event follows.
pub fn is_handed_over(giver: &[HeldObject], receiver: &str, status: &SyncStatus) -> bool {
    let is_applied = conditions::is_true(&status.conditions, "Ready");
    let claimed = |id: &ObjectId| {
        status.inventory.iter().any(|object| ObjectId::from(object) == *id)
            && !status.held.iter().any(|object| ObjectId::from(object) == *id)
    };
    is_applied && kept_for(receiver, giver).any(|id| claimed(&id))
}

/// Returns what a Sync that is not ready adds to its message: the objects that others keep for it.
pub fn kept_message(kept: &[(ObjectId, String)]) -> Option<String> {
    let listed = kept.iter().take(LISTED).map(|(id, by)| format!("Sync {by} keeps {id}"));
    let mut listed = listed.collect::<Vec<_>>().join(", ");
    if kept.len() > LISTED {
        listed = format!("{listed}, and others keep {} more objects", kept.len() - LISTED);
    }
    (!kept.is_empty()).then(|| format!("{listed} until this Sync takes it over"))
}

/// What to do with a Sync when another one has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    None,
    /// Report it.
    Report,
    /// Apply it again, whenever it was applied last.
    Apply,
}

/// A Sync that has changed, or was deleted.
#[derive(Clone, Copy, Debug)]
pub struct ChangedSync<'a> {
    pub name: &'a str,
    pub status: &'a SyncStatus,
    pub is_deleted: bool,
}

/// Returns whether a Sync has recorded one of the objects that another one has just written, and does not report
/// the conflict. It has to find out which of them keeps the object.
pub fn is_rival(status: &SyncStatus, written: &BTreeSet<ObjectId>) -> bool {
    let ready = conditions::find(&status.conditions, "Ready");
    let conflict = ready.filter(|ready| ready.status == "False" && ready.reason == "Conflict");
    let is_reported = |id: &ObjectId| conflict.is_some_and(|ready| ready.message.contains(&id.to_string()));
    let is_held = |id: &ObjectId| status.held.iter().any(|held| ObjectId::from(held) == *id);
    let mut recorded = status.inventory.iter().map(ObjectId::from);
    recorded.any(|id| written.contains(&id) && !is_held(&id) && !is_reported(&id))
}

/// Returns what to do with the Sync `name` when another one has changed.
pub fn reaction(name: &str, status: &SyncStatus, changed: ChangedSync<'_>) -> Reaction {
    let ready = conditions::find(&status.conditions, "Ready");
    let is_conflict = ready.is_some_and(|ready| ready.status == "False" && ready.reason == "Conflict");
    let holds = status.held.iter().any(|held| held.sync == changed.name);
    if holds || changed.is_deleted && is_conflict {
        return Reaction::Apply;
    }
    let mut kept = kept_for(name, &changed.status.held).take(LISTED).peekable();
    if kept.peek().is_none() {
        return Reaction::None;
    }
    // The message of a Sync that is not ready lists what is kept for it.
    let is_reported = |id: ObjectId| ready.is_some_and(|ready| ready.message.contains(&id.to_string()));
    if !is_conflict && kept.all(is_reported) { Reaction::Report } else { Reaction::Apply }
}

/// Returns namespace and name of a Sync.
pub fn named(sync: &SyncObject) -> String {
    let metadata = &sync.metadata;
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
