//! Plans the placements of one kind.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::capi::DELETE_FOR_MOVE_ANNOTATION;
use chandler_core::{
    change_plan::{ClusterPlan, DiffView, ObjectPlan, PlanPart},
    failure::Failure,
    identity::{ClusterKey, ClusterMap},
    naming,
    parameters::SecretValues,
    placement::{Change, PlacementKind, changes},
    release::{ReleaseKind, Strategy},
};
use futures::{StreamExt as _, stream};
use kube::{
    Resource, ResourceExt as _,
    api::DynamicObject,
    core::NamespaceResourceScope,
    runtime::reflector::{ObjectRef, Store},
};

use super::{
    release::{PlannedObject, ReleasePlanner, RemovalCause},
    situation::PlannedClaims,
};
use crate::{
    ReconcileError,
    caches::ReleaseCache,
    clusters::{self, Clusters},
    extension::OneShotResolver,
    kinds::{ComposeServices, ManagedKind},
    pair::{Pair, release_context},
    placement::{Compose, ComposeError, ComposeMode, ComposedRelease, WriteValues, by_cluster},
    routing::Router,
    watch,
};

/// Clusters that are planned at the same time.
const CONCURRENCY: usize = 8;

/// Plans the placements and release objects of one kind.
pub struct KindPlanner<P: PlacementKind> {
    pub placements: Store<P>,
    releases: ReleaseCache<P::Release>,
    clusters: Clusters,
    router: Router,
    composer: Box<dyn Compose<P>>,
    claims: PlannedClaims,
    release_planner: ReleasePlanner<P::Release>,
}

/// What is to be planned for a cluster.
pub enum ClusterStep<R> {
    Failed(String),
    Unchanged(Option<String>),
    Apply(Box<PlannedObject<R>>),
    /// The release object is removed first. The last field is why the manager would not do so.
    Replace(Box<PlannedObject<R>>, Arc<R>, Option<String>),
    Remove(Arc<R>, RemovalCause, Option<String>),
}

/// What is to be planned for an object. Without an error, it has the steps of its clusters.
pub struct Prepared<R> {
    plan: ObjectPlan,
    steps: ClusterMap<ClusterStep<R>>,
}

/// What is known about the release of a placement on a selected cluster.
struct Selected<'a, P: PlacementKind> {
    placement: &'a P,
    key: &'a ClusterKey,
    cluster: &'a DynamicObject,
    composed: Option<Result<ComposedRelease<P::Release>, ComposeError>>,
    existing: Option<Arc<P::Release>>,
    /// Whether its identity would change.
    is_replaced: bool,
    /// Why the extensions of the cluster are unknown.
    unresolved: Option<String>,
}

/// Why the clusters of a placement cannot be planned.
#[derive(Debug, thiserror::Error)]
enum PlanError {
    #[error(transparent)]
    Selection(#[from] chandler_core::placement::SelectionError),
    #[error(transparent)]
    Compose(#[from] ReconcileError),
}

impl<P> KindPlanner<P>
where
    P: ManagedKind,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    pub fn new(
        pair: &Pair<P>,
        services: &ComposeServices<'_>,
        claims: &PlannedClaims,
        view: DiffView,
    ) -> Self {
        let context = release_context(services.shared, services.caches, pair, &Arc::default());
        Self {
            placements: pair.placements(),
            releases: pair.releases(),
            clusters: services.caches.clusters.clone(),
            router: services.shared.router.clone(),
            composer: pair.composer(services),
            claims: claims.clone(),
            release_planner: ReleasePlanner::new(context, claims.clone(), view),
        }
    }

    /// Returns what is to be planned for a placement, or only for one of its clusters.
    pub async fn prepare(
        &self,
        namespace: &str,
        name: &str,
        cluster: Option<&str>,
        resolver: &OneShotResolver,
    ) -> Prepared<P::Release> {
        let Some(placement) = self.placements.get(&ObjectRef::new(name).within(namespace)) else {
            let error = format!("{} {namespace}/{name} not found", P::kind(&()));
            return Self::failed(namespace, name, &error);
        };
        let steps = match self.steps(&placement, cluster, resolver).await {
            Ok(steps) => steps,
            Err(error) => return Self::failed(namespace, name, &error),
        };
        if let Some(cluster) = cluster.filter(|_| steps.is_empty()) {
            let error = format!("it does not select Cluster {cluster}, and has no release on it");
            return Self::failed(namespace, name, &error);
        }
        for step in steps.values() {
            self.register(step);
        }
        Prepared { plan: named(P::kind(&()).as_ref(), namespace, name), steps }
    }

    /// Returns what is to be planned for the release object as it is stored.
    pub fn prepare_release(
        &self,
        namespace: &str,
        name: &str,
        cluster: Option<&str>,
    ) -> Prepared<P::Release> {
        let kind = P::Release::kind(&());
        let plan = named(kind.as_ref(), namespace, name);
        let failed = |error: String| Prepared {
            plan: ObjectPlan { error: Some(error), ..plan.clone() },
            steps: ClusterMap::new(),
        };
        let Some(release) = self.releases.by_reference(&ObjectRef::new(name).within(namespace)) else {
            return failed(format!("{kind} {namespace}/{name} not found"));
        };
        let Some(key) = P::cluster_of(&release) else { return failed("it names no cluster".to_owned()) };
        if let Some(cluster) = cluster.filter(|cluster| *cluster != key.name) {
            return failed(format!("it is for Cluster {}, not for {cluster}", key.name));
        }
        let step = if release.meta().deletion_timestamp.is_some() {
            ClusterStep::Remove(release, RemovalCause::Deleted, None)
        } else if self.is_installed_once(&key, &release) {
            ClusterStep::Unchanged(Some(INSTALLED_ONCE.to_owned()))
        } else {
            ClusterStep::Apply(Box::new(PlannedObject {
                object: P::Release::clone(&release),
                unwritten: None,
                secrets: SecretValues::default(),
                generation: release.meta().generation,
                existing: Some(release),
            }))
        };
        Prepared { plan, steps: [(key, step)].into_iter().collect() }
    }

    /// Plans the steps, and reports each part as soon as it and those before it are known. An error of one cluster does not hide
    /// the others.
    pub async fn run(
        &self,
        prepared: Prepared<P::Release>,
        on_part: &(dyn Fn(PlanPart<'_>) + Sync),
    ) -> ObjectPlan {
        let Prepared { plan, steps } = prepared;
        on_part(PlanPart::Begin { object: &plan, has_clusters: !steps.is_empty() });
        let plans = stream::iter(steps).map(|(key, step)| async move { self.run_step(&key, step).await });
        let plans = plans.buffered(CONCURRENCY).inspect(|plan| on_part(PlanPart::Cluster(plan)));
        let plan = ObjectPlan { clusters: plans.collect().await, ..plan };
        on_part(PlanPart::End(&plan));
        plan
    }

    /// Returns the plan of a placement about whose clusters nothing is known.
    pub fn failed(namespace: &str, name: &str, error: &impl ToString) -> Prepared<P::Release> {
        let plan = named(P::kind(&()).as_ref(), namespace, name);
        Prepared { plan: ObjectPlan { error: Some(error.to_string()), ..plan }, steps: ClusterMap::new() }
    }

    /// Lets other planned objects know about a release object that does not exist yet: they may claim the same release, or depend
    /// on it.
    fn register(&self, step: &ClusterStep<P::Release>) {
        match step {
            ClusterStep::Apply(planned) => {
                if planned.existing.is_none() {
                    self.router.on_release::<P>(&watch::Change::Applied(&planned.object));
                }
                self.claims.add(planned.existing.as_deref().unwrap_or(&planned.object));
            }
            // The existing object has its claim until it is gone.
            ClusterStep::Replace(planned, ..) => self.claims.add(&planned.object),
            ClusterStep::Failed(_) | ClusterStep::Unchanged(_) | ClusterStep::Remove(..) => {}
        }
    }

    /// Returns what is to be planned for each cluster that the placement selects, or has a release on.
    async fn steps(
        &self,
        placement: &P,
        cluster: Option<&str>,
        resolver: &OneShotResolver,
    ) -> Result<Steps<P>, PlanError> {
        let is_planned = |key: &ClusterKey| cluster.is_none_or(|cluster| cluster == key.name);
        let namespace = placement.namespace().unwrap_or_default();
        let mut existing = self.releases.of_owner(&namespace, &naming::label_value(&placement.name_any()));
        existing.retain(|release| P::cluster_of(release).is_some_and(|key| is_planned(&key)));
        if placement.meta().deletion_timestamp.is_some() {
            return Ok(self.removals(placement, existing));
        }
        let selection = placement.selection()?;
        let mut selected = self.clusters.in_namespace(&namespace);
        selected.retain(|key, cluster| is_planned(key) && selection.matches(&key.name, cluster.labels()));
        let by_cluster = by_cluster::<P>(&existing);
        let (mut composed, unresolved) = self.compose(placement, &selected, &by_cluster, resolver).await?;
        let object = |key: &ClusterKey| match composed.get(key) {
            Some(Ok(one)) => Some(one.object.clone()),
            _ => None,
        };
        let desired: ClusterMap<_> = selected.keys().map(|key| (key.clone(), object(key))).collect();
        let uid_of = |key: &ClusterKey| selected.get(key).and_then(|cluster| cluster.uid());
        let changes = changes::<P>(&desired, &existing, placement.strategy(), uid_of);
        let mut steps = ClusterMap::new();
        for (key, cluster) in &selected {
            let existing = by_cluster.get(key).cloned();
            let is_replaced = changes.iter().any(|change| {
                matches!(change, Change::Delete(old) if existing.as_ref().is_some_and(|existing| Arc::ptr_eq(old, existing)))
            });
            let composed = composed.remove(key);
            let unresolved = unresolved.get(key).map(ToString::to_string);
            let step =
                self.step(Selected { placement, key, cluster, composed, existing, is_replaced, unresolved });
            steps.insert(key.clone(), step);
        }
        for change in changes {
            if let Change::Unselect(release) = change
                && let Some(key) = P::cluster_of(&release)
            {
                let needed = self.composer.is_needed(&release);
                steps.insert(key, ClusterStep::Remove(release, RemovalCause::Unselected, needed));
            }
        }
        let deleting = by_cluster.into_iter().filter(|(key, release)| {
            !selected.contains_key(key) && release.meta().deletion_timestamp.is_some()
        });
        for (key, release) in deleting {
            steps.insert(key, ClusterStep::Remove(release, RemovalCause::Deleted, None));
        }
        Ok(steps)
    }

    /// Returns the removals of all releases of a placement that is being deleted.
    fn removals(&self, placement: &P, existing: Vec<Arc<P::Release>>) -> Steps<P> {
        let is_moved = placement.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION);
        let cause = if is_moved { RemovalCause::Moved } else { RemovalCause::Deleted };
        let step = |release: Arc<P::Release>| {
            let key = P::cluster_of(&release)?;
            let needed = self.composer.is_needed(&release);
            Some((key, ClusterStep::Remove(release, cause, needed)))
        };
        existing.into_iter().filter_map(step).collect()
    }

    /// Composes the release objects of clusters that are neither paused nor being deleted. Also returns why the extensions of
    /// clusters may be unknown.
    async fn compose(
        &self,
        placement: &P,
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<P::Release>>,
        resolver: &OneShotResolver,
    ) -> Result<(ComposedObjects<P>, ClusterMap<Failure>), ReconcileError> {
        let active: ClusterMap<_> = selected
            .iter()
            .filter(|(_, cluster)| !clusters::is_paused_or_deleting(cluster))
            .map(|(key, cluster)| (key.clone(), cluster.clone()))
            .collect();
        if active.is_empty() {
            return Ok((BTreeMap::new(), BTreeMap::new()));
        }
        let mut unresolved = BTreeMap::new();
        if placement.follows_extensions() {
            let inputs = stream::iter(&active).map(|(key, cluster)| async move {
                // It publishes the Extensions that the cluster needs.
                (key.clone(), resolver.input(cluster).await.err())
            });
            let failures: Vec<_> = inputs.buffered(CONCURRENCY).collect().await;
            unresolved.extend(failures.into_iter().filter_map(|(key, failure)| Some((key, failure?))));
        }
        let mode = ComposeMode { package_of: None, write_values: WriteValues::Never };
        let composed = self.composer.compose(placement, &active, existing, &mode).await?;
        Ok((composed, unresolved))
    }

    fn step(&self, selected: Selected<'_, P>) -> ClusterStep<P::Release> {
        let Selected { placement, key, cluster, composed, existing, is_replaced, unresolved } = selected;
        if clusters::is_paused_or_deleting(cluster) {
            return match existing.filter(|existing| existing.meta().deletion_timestamp.is_some()) {
                Some(existing) => ClusterStep::Remove(existing, RemovalCause::Deleted, None),
                None => ClusterStep::Unchanged(Some("the Cluster is paused or being deleted".to_owned())),
            };
        }
        let ComposedRelease { object, unwritten_values: unwritten, secrets, .. } = match composed {
            Some(Ok(ComposedRelease { refused: Some(why), .. })) => return ClusterStep::Failed(why),
            Some(Ok(composed)) => composed,
            Some(Err(ComposeError::Pending)) | None => {
                let policy = existing.and_then(|existing| self.release_planner.missing_policy(&existing));
                if let (Some(policy), false) = (policy, placement.follows_extensions()) {
                    let note = format!("{policy}, whose values the release has, does not exist");
                    return ClusterStep::Unchanged(Some(note));
                }
                let unknown = || "the version of the extension is unknown".to_owned();
                return ClusterStep::Failed(unresolved.unwrap_or_else(unknown));
            }
            Some(Err(error)) => return ClusterStep::Failed(error.to_string()),
        };
        let generation = existing.as_ref().and_then(|existing| {
            existing.meta().generation.map(|now| now + i64::from(!existing.has_same_spec(&object)))
        });
        let planned = |existing| Box::new(PlannedObject { object, unwritten, secrets, existing, generation });
        match existing {
            // It is created again when it is gone.
            Some(existing) if existing.meta().deletion_timestamp.is_some() => {
                ClusterStep::Replace(planned(None), existing, None)
            }
            Some(existing)
                if placement.strategy() == Strategy::InstallOnce
                    && self.is_installed_once(key, &existing) =>
            {
                ClusterStep::Unchanged(Some(INSTALLED_ONCE.to_owned()))
            }
            Some(existing) if is_replaced => {
                let needed = self.composer.is_needed(&existing);
                ClusterStep::Replace(planned(None), existing, needed)
            }
            existing => ClusterStep::Apply(planned(existing)),
        }
    }

    /// Returns whether a release object was installed on this cluster, and is not changed any more.
    fn is_installed_once(&self, key: &ClusterKey, release: &P::Release) -> bool {
        let uid = self.clusters.facts(key).uid;
        release.desired().is_ok_and(|desired| desired.strategy == Strategy::InstallOnce)
            && release.is_marked_installed(uid.as_deref())
    }

    async fn run_step(&self, key: &ClusterKey, step: ClusterStep<P::Release>) -> ClusterPlan {
        let releases = &self.release_planner;
        let result = match step {
            ClusterStep::Failed(error) => return ClusterPlan::failed(&key.name, &error),
            ClusterStep::Unchanged(note) => return ClusterPlan::unchanged(&key.name, note),
            ClusterStep::Apply(planned) => releases.apply(*planned).await,
            ClusterStep::Replace(planned, existing, needed) => {
                releases.replace(*planned, &existing, needed).await
            }
            ClusterStep::Remove(release, cause, needed) => releases.remove(&release, cause, needed).await,
        };
        result.unwrap_or_else(|failure| ClusterPlan::failed(&key.name, &failure))
    }
}

const INSTALLED_ONCE: &str = "it was installed before, and the strategy is InstallOnce";

/// What is to be planned for clusters.
type Steps<P> = ClusterMap<ClusterStep<<P as PlacementKind>::Release>>;
/// The composed release objects, or why there is none.
type ComposedObjects<P> = crate::placement::Composed<<P as PlacementKind>::Release>;

fn named(kind: &str, namespace: &str, name: &str) -> ObjectPlan {
    ObjectPlan {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        error: None,
        clusters: Vec::new(),
    }
}
