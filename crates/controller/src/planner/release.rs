//! Plans one release: resolves its inputs, renders its objects and compares them with those of the deployed revision.

use std::sync::Arc;

use chandler_api::{
    extensions::OnUnselect,
    status::{PackageRecord, ReleaseStatus},
};
use chandler_core::{
    change_plan::{
        ChangeAction, ClusterPlan, DiffTexts, DiffView, NextOperation, NextRemoval, ObjectDiff,
        ReleaseObject, RemovalEffect, diff_objects, next_operation, next_removal,
    },
    failure::{Category, Failure},
    inventory::RevisionState,
    package_format::PackageFormat,
    parameters::{Rendered, SecretValues},
    release::{
        ClusterState, Desired, InputState, InventoryState, Observed, ReleaseKind, RemoveFinalizer, Values,
        Wait, wait_text,
    },
    target::Target,
    tenancy::ReleaseUse,
};
use chandler_tool::{PackageTool, ReleaseDetails, RenderOrder, RenderedRelease};
use tokio::task::spawn_blocking;

use super::situation::{PlannedClaims, Situation};
use crate::{
    locks::Mutex,
    release::{Inputs, PlacementState, ReleaseContext, file, package_format},
};

/// Plans releases of one kind.
pub struct ReleasePlanner<R: ReleaseKind> {
    context: ReleaseContext<R>,
    claims: PlannedClaims,
    view: DiffView,
    texts: Mutex<DiffTexts>,
}

/// A release object that is to exist.
pub struct PlannedObject<R> {
    pub object: R,
    /// The values that its Secret does not have yet.
    pub unwritten: Option<Rendered>,
    /// The values that come from Secrets.
    pub secrets: SecretValues,
    pub existing: Option<Arc<R>>,
    /// The generation that the object would have.
    pub generation: Option<i64>,
}

/// Why a release object would be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Its placement no longer selects the cluster.
    Unselected,
    /// It is replaced or deleted, or its placement is.
    Deleted,
    /// `clusterctl move` has moved its placement.
    Moved,
}

/// The resolved inputs of a release, and how to reach its cluster.
struct Next {
    desired: Desired,
    inputs: Inputs,
    tool: PackageTool,
    target: Target,
}

/// A removal, and what is stored on the cluster. `None` means that it was not read.
struct Removal {
    desired: Desired,
    next: NextRemoval,
    stored: Option<RenderedRelease>,
}

impl<R: ReleaseKind> PlannedObject<R> {
    /// Returns the object with the metadata and status that it would have if it was applied.
    fn applied(&self) -> R {
        let mut applied = self.existing.as_deref().unwrap_or(&self.object).clone();
        applied.meta_mut().generation = self.generation;
        applied
    }
}

impl<R: ReleaseKind> ReleasePlanner<R> {
    pub fn new(context: ReleaseContext<R>, claims: PlannedClaims, view: DiffView) -> Self {
        Self { context, claims, view, texts: Mutex::default() }
    }

    /// Plans the install or upgrade of a release.
    pub async fn apply(&self, planned: PlannedObject<R>) -> Result<ClusterPlan, Failure> {
        let applied = planned.applied();
        let PlannedObject { object, unwritten, secrets, existing, generation } = planned;
        let state = (self.context.placement_state)(&applied);
        let desired = self.desired(&state, &object, unwritten).await?;
        let mut situation = Situation::new(&self.context, &self.claims, state, &applied, &desired, None);
        situation.refused = self.context.boundary(&desired, ReleaseUse::Desired).await.err();
        let (mut plan, name) = (plan_of(&desired), desired.release.to_string());
        if situation.facts.state != ClusterState::Available {
            let observed = situation.observed(InventoryState::Loading, InputState::Unresolved, None);
            return Ok(with_operation(plan, next_operation(&observed, generation, &name)));
        }
        let next = self.next(desired, existing.as_deref()).await?;
        let Next { desired, inputs, tool, target } = &next;
        self.check_tool(&next, existing.as_deref()).await?;
        // Most releases are unchanged, and then the package is not needed.
        let details = tool.observe(target, &desired.release).await?;
        let newest = details.as_ref().map(|details| seen(details, applied.status()));
        let is_other = details.is_some_and(|details| !inputs.are_those_of(&details, desired));
        let rollback = situation.state.requested_rollback(&applied, &inputs.digest);
        let observed = Observed {
            differs: newest.as_ref().filter(|_| is_other).map(|newest| newest.revision),
            ..situation.observed(
                InventoryState::Known(newest.as_ref()),
                InputState::Resolved(&inputs.digest),
                rollback.as_ref(),
            )
        };
        plan = with_operation(plan, next_operation(&observed, generation, &name));
        plan.to_version = Some(inputs.package.version.clone());
        if plan.action == Some(ChangeAction::Unchanged) {
            return Ok(plan);
        }
        let rendered = self.render(&next).await?;
        plan.from_version = rendered.base.map(|base| base.package_version);
        let secrets = self.secrets(secrets, existing.as_deref(), Some(desired)).await?;
        plan.objects = self.diff(rendered.base_objects, rendered.objects, secrets).await?;
        Ok(plan)
    }

    /// Plans the removal of a release and its install, possibly under another identity. `needed` is why the manager would not
    /// delete its release object.
    pub async fn replace(
        &self,
        planned: PlannedObject<R>,
        existing: &R,
        needed: Option<String>,
    ) -> Result<ClusterPlan, Failure> {
        let PlannedObject { object, unwritten, secrets, .. } = planned;
        let state = (self.context.placement_state)(&object);
        let desired = self.desired(&state, &object, unwritten).await?;
        let situation = Situation::new(&self.context, &self.claims, state, &object, &desired, Some(existing));
        let Removal { desired: before, next: removal, stored } =
            self.removal(existing, RemovalCause::Deleted).await?;
        let is_renamed = before.release != desired.release;
        let note = match removal.effect.note() {
            Some(note) => Some(format!("release {}: {note}", before.release)),
            None => is_renamed.then(|| format!("release {} would be uninstalled first", before.release)),
        };
        let replaced = ClusterPlan { action: Some(ChangeAction::Replace), note, ..plan_of(&desired) };
        let (name, held) = (desired.release.to_string(), needed.or(removal.held));
        if situation.facts.state != ClusterState::Available {
            let observed = situation.observed(InventoryState::Loading, InputState::Unresolved, None);
            let next = next_operation(&observed, None, &name);
            let note = replaced.note.clone().or(next.note);
            return Ok(ClusterPlan { held: held.or(next.held), note, ..replaced });
        }
        let next = self.next(desired, None).await?;
        let inventory = InventoryState::Known(None);
        let observed = situation.observed(inventory, InputState::Resolved(&next.inputs.digest), None);
        let held = held.or(next_operation(&observed, None, &name).held);
        let rendered = self.render(&next).await?;
        let secrets = self.secrets(secrets, Some(existing), Some(&next.desired)).await?;
        let (from, before) = stored.map_or((None, Vec::new()), |stored| (stored.base, stored.base_objects));
        Ok(ClusterPlan {
            from_version: from.map(|base| base.package_version),
            to_version: Some(next.inputs.package.version.clone()),
            held,
            objects: self.diff(before, rendered.objects, secrets).await?,
            ..replaced
        })
    }

    /// Plans the removal of a release. `needed` is why the manager would not delete its release object.
    pub async fn remove(
        &self,
        existing: &R,
        cause: RemovalCause,
        needed: Option<String>,
    ) -> Result<ClusterPlan, Failure> {
        let Removal { desired, next, stored } = self.removal(existing, cause).await?;
        let known = existing.status().and_then(|status| status.package.as_ref());
        let mut plan = ClusterPlan {
            action: Some(ChangeAction::Remove),
            from_version: known.map(|package| package.version.clone()),
            on_unselect: match next.effect {
                RemovalEffect::Leave(RemoveFinalizer::Orphaned) => Some(OnUnselect::Orphan),
                RemovalEffect::Leave(_) => None,
                RemovalEffect::Uninstall | RemovalEffect::Unknown => Some(OnUnselect::Uninstall),
            },
            note: next.effect.note().map(str::to_owned),
            held: needed.or(next.held),
            ..plan_of(&desired)
        };
        if let Some(RenderedRelease { base: Some(base), base_objects, .. }) = stored {
            plan.from_version = Some(base.package_version);
            let secrets = self.secrets(SecretValues::default(), Some(existing), None).await?;
            plan.objects = self.diff(base_objects, Vec::new(), secrets).await?;
        }
        Ok(plan)
    }

    /// Compares objects, outside of the threads that serve requests.
    async fn diff(
        &self,
        old: Vec<ReleaseObject>,
        new: Vec<ReleaseObject>,
        secrets: SecretValues,
    ) -> Result<Vec<ObjectDiff>, Failure> {
        let view = self.view;
        let compared = spawn_blocking(move || diff_objects(&old, &new, &secrets, view)).await;
        let mut objects = compared.map_err(|error| Failure::new(Category::Internal, error.to_string()))?;
        self.texts.lock().share(&mut objects);
        Ok(objects)
    }

    /// Returns the values that are masked in diffs: those of the layers that come from Secrets, and those in the Secrets of the
    /// existing and the desired release.
    async fn secrets(
        &self,
        mut secrets: SecretValues,
        existing: Option<&R>,
        desired: Option<&Desired>,
    ) -> Result<SecretValues, Failure> {
        if self.view.show_secret_values || !self.view.texts {
            return Ok(SecretValues::default());
        }
        let before = existing.map(ReleaseKind::desired).transpose()?;
        for stored in before.iter().chain(desired) {
            if matches!(stored.values, Values::Secret(..)) {
                secrets.add_stored(&self.context.values_text(stored).await?);
            }
        }
        Ok(secrets)
    }

    /// Returns the policy of a release that does not exist.
    pub fn missing_policy(&self, release: &R) -> Option<String> {
        (self.context.placement_state)(release).policy.missing().map(ToString::to_string)
    }

    /// Decides about a removal. Reads the release only if it would be uninstalled.
    async fn removal(&self, existing: &R, cause: RemovalCause) -> Result<Removal, Failure> {
        let state = (self.context.placement_state)(existing);
        let desired = state.apply_to(existing.desired()?);
        let mut situation = Situation::new(&self.context, &self.claims, state, existing, &desired, None);
        if cause == RemovalCause::Unselected {
            situation.orphan = situation.state.policy.effective().on_unselect == OnUnselect::Orphan;
        }
        situation.moved |= cause == RemovalCause::Moved;
        let name = desired.release.to_string();
        let observed = situation.observed(InventoryState::Loading, InputState::Unresolved, None);
        let mut next = next_removal(&observed, &name);
        if next.effect != RemovalEffect::Unknown {
            return Ok(Removal { desired, next, stored: None });
        }
        if situation.facts.state == ClusterState::ControlPlaneNotInitialized {
            let waiting = || wait_text(&Wait::ControlPlaneNotInitialized, &name);
            next.held = Some(next.held.unwrap_or_else(waiting));
            return Ok(Removal { desired, next, stored: None });
        }
        let mut stored = self.stored(&desired, existing.status()).await?;
        let newest = stored.newest.take().map(|newest| seen(&newest, existing.status()));
        let inventory = InventoryState::Known(newest.as_ref());
        let next = next_removal(&situation.observed(inventory, InputState::Unresolved, None), &name);
        let stored = Some(stored).filter(|_| next.effect == RemovalEffect::Uninstall);
        Ok(Removal { desired, next, stored })
    }

    async fn desired(
        &self,
        state: &PlacementState,
        object: &R,
        unwritten: Option<Rendered>,
    ) -> Result<Desired, Failure> {
        let mut desired = self.context.catalogs.located(state.apply_to(object.desired()?)).await?;
        if let Some(values) = unwritten {
            desired.values = Values::Text(values.text);
        }
        Ok(desired)
    }

    /// Resolves the inputs.
    async fn next(&self, desired: Desired, existing: Option<&R>) -> Result<Next, Failure> {
        let facts = self.context.clusters.facts(&desired.cluster);
        let known = existing.and_then(|existing| existing.status().cloned()).unwrap_or_default();
        let inputs = self.context.inputs(&desired, &known, facts.control_plane.as_ref()).await?;
        let tool = self.tool(&desired, Some(&inputs.package)).await?;
        let target = self.context.caches.connections.read_target(&desired.cluster).await?;
        Ok(Next { desired, inputs, tool, target })
    }

    /// Refuses a package for another tool than that which has installed the release.
    async fn check_tool(&self, next: &Next, existing: Option<&R>) -> Result<(), Failure> {
        let status = existing.and_then(ReleaseKind::status);
        let installed = status.and_then(|status| status.package.as_ref());
        let is_other =
            |installed: &&PackageRecord| package_format(installed) != package_format(&next.inputs.package);
        let Some(installed) = installed.filter(is_other) else { return Ok(()) };
        let tool = self.tool(&next.desired, Some(installed)).await?;
        let found = tool.observe(&next.target, &next.desired.release).await?;
        self.context.check_tool(found.map(|_| installed), &next.inputs.package).await
    }

    /// Renders the objects.
    async fn render(&self, next: &Next) -> Result<RenderedRelease, Failure> {
        let Next { desired, inputs, tool, target } = next;
        let package = self.context.stored_package(desired, &inputs.package).await?;
        let order = RenderOrder {
            target: target.clone(),
            release: desired.release.clone(),
            package: Some(file(&package)),
            values: self.context.values_text(desired).await?,
            rendering: desired.rendering.clone(),
            execution: desired.execution.clone(),
        };
        tool.render(order).await
    }

    /// Reads the objects of the stored revision.
    async fn stored(
        &self,
        desired: &Desired,
        status: Option<&ReleaseStatus>,
    ) -> Result<RenderedRelease, Failure> {
        let order = RenderOrder {
            target: self.context.caches.connections.read_target(&desired.cluster).await?,
            release: desired.release.clone(),
            package: None,
            values: String::new(),
            rendering: desired.rendering.clone(),
            execution: desired.execution.clone(),
        };
        let package = status.and_then(|status| status.package.as_ref());
        self.tool(desired, package).await?.render(order).await
    }

    /// Returns the tool of a package.
    async fn tool(&self, desired: &Desired, package: Option<&PackageRecord>) -> Result<PackageTool, Failure> {
        let format = PackageFormat::stored(package.and_then(|package| package.format.as_deref()));
        let tool = self.context.tools.for_format(&format).await?;
        Ok(tool.in_namespace(&desired.cluster.namespace))
    }
}

/// Returns a revision as the inventory would list it. Its time is that of the status, which is when it was seen first.
fn seen(details: &ReleaseDetails, status: Option<&ReleaseStatus>) -> RevisionState {
    let history = status.map_or(&[][..], |status| &status.history);
    let updated = history.iter().find(|record| record.revision == details.revision).map(|record| record.at.0);
    RevisionState { updated, ..details.seen() }
}

fn plan_of(desired: &Desired) -> ClusterPlan {
    ClusterPlan {
        cluster: desired.cluster.name.clone(),
        release: Some(desired.release.to_string()),
        ..ClusterPlan::default()
    }
}

fn with_operation(plan: ClusterPlan, next: NextOperation) -> ClusterPlan {
    let NextOperation { action, held, note } = next;
    ClusterPlan { action: Some(action), held, note, ..plan }
}
