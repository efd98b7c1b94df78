//! The prune guard: which objects that are no longer in the folder are deleted. In doubt, an object is kept.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{GROUP, HeldObject, Prune, SyncObject, SyncStatus, SyncedObject};

use super::{Live, ObjectId};
use crate::extension::namespace_of;

/// More deletions than this are held.
const MAX_DELETIONS: usize = 10;
/// From this number of objects on, more than [`MAX_PERCENT`] are held.
const PERCENT_FROM: usize = 10;
const MAX_PERCENT: usize = 20;

/// Why an object that is no longer in the folder is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    PruneDisabled,
    /// The Sync itself, its Source, its ServiceAccount, or what contains them.
    OwnObject,
    /// A kind whose objects are deleted only if `prune.confirm` names them.
    ProtectedKind,
    TooManyDeletions,
    /// The Sync names another Source or folder than before.
    SourceChanged,
    /// The revision was applied before: the branch was reset, or the Source names an older revision.
    RevisionAppliedBefore,
    ClusterPaused,
    /// The API server does not serve the kind, so the object cannot be read.
    KindNotServed,
}

impl HeldReason {
    const ALL: [Self; 8] = [
        Self::PruneDisabled,
        Self::OwnObject,
        Self::ProtectedKind,
        Self::TooManyDeletions,
        Self::SourceChanged,
        Self::RevisionAppliedBefore,
        Self::ClusterPaused,
        Self::KindNotServed,
    ];

    /// Returns the reason as `status.held` stores it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PruneDisabled => "PruneDisabled",
            Self::OwnObject => "OwnObject",
            Self::ProtectedKind => "ProtectedKind",
            Self::TooManyDeletions => "TooManyDeletions",
            Self::SourceChanged => "SourceChanged",
            Self::RevisionAppliedBefore => "RevisionAppliedBefore",
            Self::ClusterPaused => "ClusterPaused",
            Self::KindNotServed => "KindNotServed",
        }
    }

    /// Returns whether an object stays held until it is confirmed or in the folder again, even if the cause is gone: the
    /// cause was an event, and the next reconcile would not see it.
    fn is_sticky(self) -> bool {
        matches!(self, Self::TooManyDeletions | Self::SourceChanged | Self::RevisionAppliedBefore)
    }
}

/// An object that is kept, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub object: SyncedObject,
    pub reason: HeldReason,
}

impl From<&Held> for HeldObject {
    fn from(held: &Held) -> Self {
        let SyncedObject { api_version, kind, namespace, name, uid: _ } = held.object.clone();
        Self { api_version, kind, namespace, name, reason: held.reason.as_str().to_owned() }
    }
}

/// What the guard decides from.
#[derive(Clone, Copy, Debug)]
pub struct PruneInput<'a> {
    pub prune: &'a Prune,
    /// The revision that was applied.
    pub revision: &'a str,
    pub inventory: &'a [SyncedObject],
    /// The objects in the folder. They were all applied. A folder without objects is refused before.
    pub rendered: &'a BTreeSet<ObjectId>,
    /// Objects that the Sync cannot do without, see [`PruneInput::own_objects`].
    pub own: &'a BTreeSet<ObjectId>,
    pub source_changed: bool,
    pub revision_applied_before: bool,
    /// The objects that were held before.
    pub held: &'a [HeldObject],
}

impl PruneInput<'_> {
    /// Returns what a Sync needs: itself, its Source, its ServiceAccount, and the namespaces that contain them.
    pub fn own_objects(sync: &SyncObject, platform: &str) -> BTreeSet<ObjectId> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let name = sync.metadata.name.as_deref().unwrap_or_default();
        let source = &sync.spec.source.source_ref;
        let source_namespace = namespace_of(source.scope, namespace, platform);
        BTreeSet::from([
            ObjectId::new(&format!("{GROUP}/v1alpha1"), "Sync", namespace, name),
            ObjectId::new(&format!("{GROUP}/v1alpha1"), "Source", source_namespace, &source.name),
            ObjectId::new("v1", "ServiceAccount", namespace, &sync.spec.service_account_name),
            ObjectId::new("v1", "Namespace", "", namespace),
            ObjectId::new("v1", "Namespace", "", source_namespace),
        ])
    }

    /// Returns whether the spec names another Source or folder than the one that was applied last.
    pub fn is_source_changed(sync: &SyncObject, status: &SyncStatus) -> bool {
        let source = &sync.spec.source;
        status.last_applied.as_ref().is_some_and(|last| {
            last.source_ref != source.source_ref
                || last.path.trim_matches('/') != source.path.trim_matches('/')
        })
    }

    /// Returns whether a revision was applied before the last one.
    pub fn was_applied_before(revision: &str, status: &SyncStatus) -> bool {
        status.history.iter().skip(1).any(|earlier| earlier == revision)
    }

    fn is_confirmed(&self, id: &ObjectId) -> bool {
        let confirm = self.prune.confirm.as_ref().filter(|confirm| confirm.revision == self.revision);
        confirm.is_some_and(|confirm| confirm.objects.iter().any(|object| ObjectId::from(object) == *id))
    }

    /// Returns why the guard keeps an object whatever else is deleted, or `None` if it does not.
    fn held_alone(&self, id: &ObjectId) -> Option<HeldReason> {
        if self.own.contains(id) || defines_own_kind(id) {
            return Some(HeldReason::OwnObject);
        }
        if self.is_confirmed(id) {
            return None;
        }
        is_protected(id).then_some(HeldReason::ProtectedKind)
    }

    /// Returns the objects that the guard held before, with the reasons.
    fn held_before(&self) -> BTreeMap<ObjectId, HeldReason> {
        let reason = |held: &HeldObject| {
            let reason = HeldReason::ALL.into_iter().find(|reason| reason.as_str() == held.reason)?;
            (reason != HeldReason::PruneDisabled).then_some((ObjectId::from(held), reason))
        };
        self.held.iter().filter_map(reason).collect()
    }

    /// Returns why all deletions are held. `count` objects were removed from the folder since the guard decided last, also those
    /// that are held anyway: they show how much is missing.
    fn held_together(&self, count: usize) -> Option<HeldReason> {
        let total = self.inventory.len();
        if self.source_changed {
            return Some(HeldReason::SourceChanged);
        }
        if self.revision_applied_before {
            return Some(HeldReason::RevisionAppliedBefore);
        }
        let too_many = count > MAX_DELETIONS || total >= PERCENT_FROM && count * 100 > total * MAX_PERCENT;
        too_many.then_some(HeldReason::TooManyDeletions)
    }
}

/// Kinds whose loss destroys clusters or data.
fn is_protected(id: &ObjectId) -> bool {
    let cluster_api = "cluster.x-k8s.io";
    id.group == cluster_api
        || id.group.strip_suffix(cluster_api).is_some_and(|prefix| prefix.ends_with('.'))
        || id.group.is_empty() && matches!(&*id.kind, "Namespace" | "PersistentVolumeClaim")
        || id.kind == "CustomResourceDefinition"
}

/// Returns whether an object defines a kind of Chandler. With it, all Syncs and Sources would be deleted.
fn defines_own_kind(id: &ObjectId) -> bool {
    id.kind == "CustomResourceDefinition"
        && id.name.strip_suffix(GROUP).is_some_and(|prefix| prefix.ends_with('.'))
}

/// What to delete and what to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    pub delete: Vec<SyncedObject>,
    pub held: Vec<Held>,
}

/// Decides about the objects that are no longer in the folder. Only after all objects in the folder were applied.
pub fn plan_prune(input: &PruneInput<'_>) -> PrunePlan {
    let gone = input.inventory.iter().filter(|object| !input.rendered.contains(&ObjectId::from(*object)));
    let mut plan = PrunePlan::default();
    if !input.prune.enabled {
        plan.held =
            gone.map(|object| Held { object: object.clone(), reason: HeldReason::PruneDisabled }).collect();
        return plan;
    }
    let (before, mut together, mut newly_held) = (input.held_before(), Vec::new(), 0);
    for object in gone {
        let id = ObjectId::from(object);
        let alone = input.held_alone(&id);
        let confirmed = input.is_confirmed(&id);
        let sticky = || before.get(&id).copied().filter(|reason| reason.is_sticky() && !confirmed);
        match alone.or_else(sticky) {
            Some(reason) => {
                newly_held += usize::from(!before.contains_key(&id));
                plan.held.push(Held { object: object.clone(), reason });
            }
            None if confirmed => plan.delete.push(object.clone()),
            None => together.push(object.clone()),
        }
    }
    match input.held_together(together.len() + newly_held) {
        Some(reason) => plan.held.extend(together.into_iter().map(|object| Held { object, reason })),
        None => plan.delete.extend(together),
    }
    plan
}

/// Decides about the objects of a Sync that is being deleted with `deletionPolicy: Prune`. What is held is kept.
pub fn plan_deletion(input: &PruneInput<'_>) -> PrunePlan {
    let mut plan = PrunePlan::default();
    let held_before = |id: &ObjectId| input.held.iter().any(|held| ObjectId::from(held) == *id);
    for object in input.inventory {
        let id = ObjectId::from(object);
        match input.held_alone(&id) {
            Some(reason) => plan.held.push(Held { object: object.clone(), reason }),
            None if held_before(&id) && !input.is_confirmed(&id) => {
                plan.held.push(Held { object: object.clone(), reason: HeldReason::PruneDisabled });
            }
            None => plan.delete.push(object.clone()),
        }
    }
    plan
}

/// What to do with an object that the plan deletes, after it was read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteDecision {
    /// It does not exist any more, or is being deleted already.
    Gone,
    /// It does not belong to the Sync any more. It is removed from the inventory.
    NotOurs,
    /// `clusterctl move` is about to delete it.
    Moving,
    Hold(HeldReason),
    /// Delete exactly this version of the object.
    Delete {
        uid: String,
        resource_version: String,
    },
}

/// Decides about an object that the plan deletes. `label` is the label of the objects of the Sync.
pub fn decide_delete(id: &ObjectId, live: Option<Live<'_>>, label: &str) -> DeleteDecision {
    let Some(live) = live.filter(|live| !live.is_deleting()) else { return DeleteDecision::Gone };
    if live.owner() != Some(label) {
        return DeleteDecision::NotOurs;
    }
    if live.is_deleted_for_move() {
        return DeleteDecision::Moving;
    }
    if id.is_cluster() && live.is_paused_cluster() {
        return DeleteDecision::Hold(HeldReason::ClusterPaused);
    }
    match (live.uid(), live.resource_version()) {
        (Some(uid), Some(version)) => {
            DeleteDecision::Delete { uid: uid.to_owned(), resource_version: version.to_owned() }
        }
        _ => DeleteDecision::NotOurs,
    }
}

#[cfg(test)]
mod tests;
