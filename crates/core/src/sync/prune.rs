//! The prune guard: which objects that are no longer in the folder are deleted. In doubt, an object is kept.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{GROUP, HeldObject, Prune, SyncObject, SyncStatus, SyncedObject};

use super::{Held, HeldReason, Live, ObjectId, OtherSync};
use crate::extension::namespace_of;

/// More deletions than this are held.
const MAX_DELETIONS: usize = 10;
/// From this number of objects on, more than [`MAX_PERCENT`] are held.
const PERCENT_FROM: usize = 10;
const MAX_PERCENT: usize = 20;

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
    /// The objects that the directories of other Syncs contain, or may contain.
    pub wanted: &'a BTreeMap<ObjectId, OtherSync>,
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
        if is_placement(id) {
            return (!self.prune.delete_placements).then_some(HeldReason::ProtectedPlacement);
        }
        is_protected(id).then_some(HeldReason::ProtectedKind)
    }

    /// Returns the object if another Sync wants it, or may want it.
    fn held_for_other(&self, object: &SyncedObject, id: &ObjectId) -> Option<Held> {
        let other = self.wanted.get(id)?;
        if other.yields_to_confirmation() && self.is_confirmed(id) {
            return None;
        }
        Some(Held { object: object.clone(), reason: other.reason(), kept_for: Some(other.clone()) })
    }

    /// Returns the objects that the guard held before, with the reasons.
    fn held_before(&self) -> BTreeMap<ObjectId, HeldReason> {
        let reason = |held: &HeldObject| {
            let reason = HeldReason::ALL.into_iter().find(|reason| reason.as_str() == held.reason)?;
            reason.is_counted().then_some((ObjectId::from(held), reason))
        };
        self.held.iter().filter_map(reason).collect()
    }

    /// Returns whether all deletions are held because of something that only this run sees. That has precedence over what is
    /// held until another Sync changes.
    fn is_held_by_event(&self) -> bool {
        self.source_changed || self.revision_applied_before
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

/// Kinds that install add-ons, or that placements refer to: without them, add-ons are uninstalled or
/// cannot be changed any more.
const PLACEMENTS: [(&str, &str); 6] = [
    ("addons.cluster.x-k8s.io", "HelmChartProxy"),
    (GROUP, "ExtensionInstance"),
    (GROUP, "Extension"),
    (GROUP, "ExtensionCatalog"),
    (GROUP, "Source"),
    (GROUP, "AddonPolicy"),
];

fn is_placement(id: &ObjectId) -> bool {
    PLACEMENTS.contains(&(&*id.group, &*id.kind))
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
    let gone = input.inventory.iter().map(|object| (object, ObjectId::from(object)));
    let gone = gone.filter(|(_, id)| !input.rendered.contains(id));
    let mut plan = PrunePlan::default();
    let (before, mut together, mut newly_held) = (input.held_before(), Vec::new(), 0);
    for (object, id) in gone {
        let other = input.held_for_other(object, &id);
        if let Some(held) = other.clone().filter(|held| held.reason == HeldReason::WantedBySync) {
            plan.held.push(held);
            continue;
        }
        if !input.prune.enabled {
            plan.held.push(Held::new(object.clone(), HeldReason::PruneDisabled));
            continue;
        }
        let confirmed = input.is_confirmed(&id);
        let sticky = || before.get(&id).copied().filter(|reason| reason.is_sticky() && !confirmed);
        match input.held_alone(&id).or_else(sticky) {
            Some(reason) => {
                newly_held += usize::from(!before.contains_key(&id));
                plan.held.push(Held::new(object.clone(), reason));
            }
            None if confirmed => plan.delete.push(object.clone()),
            None => match other.filter(|_| !input.is_held_by_event()) {
                Some(held) => plan.held.push(held),
                None => together.push(object.clone()),
            },
        }
    }
    match input.held_together(together.len() + newly_held) {
        Some(reason) => plan.held.extend(together.into_iter().map(|object| Held::new(object, reason))),
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
        let held = input
            .held_for_other(object, &id)
            .or_else(|| input.held_alone(&id).map(|reason| Held::new(object.clone(), reason)));
        match held {
            Some(held) => plan.held.push(held),
            None if held_before(&id) && !input.is_confirmed(&id) => {
                plan.held.push(Held::new(object.clone(), HeldReason::PruneDisabled));
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
