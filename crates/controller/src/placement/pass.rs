//! One pass over one placement.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::{
    capi::{CLUSTER_GROUP, CLUSTER_VERSION, PAUSED_ANNOTATION},
    status::PlacementStatus,
};
use chandler_core::{
    conditions,
    identity::ClusterKey,
    naming,
    placement::{
        Change, ClusterFailure, Outcome, PlacementFace, RENDERED_FROM_ANNOTATION, SelectedCluster, changes,
        report,
    },
    release::ReleaseFace,
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, DynamicObject},
    core::{NamespaceResourceScope, Selector, SelectorExt as _},
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::{PlacementContext, dirty::Scope, values::ClusterValues};
use crate::{Error, clusters, overwrite, queue, status};

/// Release objects written at the same time, by all placements together.
pub const WRITES: usize = 16;

type ClusterMap<T> = BTreeMap<ClusterKey, T>;

pub struct Pass<P: PlacementFace> {
    pub object: Arc<P>,
    pub context: Arc<PlacementContext<P>>,
}

impl<P> Pass<P>
where
    P: PlacementFace + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    pub async fn run(self) -> Result<Action, Error> {
        if self.object.annotations().contains_key(PAUSED_ANNOTATION) {
            return Ok(queue::resync(&*self.object));
        }
        let existing = self.existing();
        if self.object.meta().deletion_timestamp.is_some() {
            return self.delete(&existing).await;
        }
        status::hold(&self.context.client, &*self.object, P::FINALIZER).await?;
        let reference = ObjectRef::from_obj(&*self.object);
        let scope = self.context.desk.dirty.take(&reference);
        let done = self.place(&reference, &scope, &existing).await;
        if done.is_err() {
            // What was taken has not been done.
            self.context.desk.dirty.all(&reference);
        }
        done
    }

    /// Brings the release objects of the clusters in `scope` up to date, then sums up all of them.
    async fn place(
        &self,
        reference: &ObjectRef<P>,
        scope: &Scope,
        existing: &[Arc<P::Release>],
    ) -> Result<Action, Error> {
        let mut outcome = Outcome::default();
        let selected = match self.selected() {
            Ok(selected) => selected,
            Err(why) => {
                outcome.selection_failed = Some(why);
                return self.finish(&BTreeMap::new(), outcome).await;
            }
        };
        let by_cluster: ClusterMap<_> =
            existing.iter().filter_map(|r| Some((P::cluster_of(r)?, r.clone()))).collect();
        let concerned: ClusterMap<_> = selected
            .iter()
            .filter(|(key, _)| scope.contains(key))
            .map(|(key, cluster)| (key.clone(), cluster.clone()))
            .collect();
        let (wanted, failing) = self.wanted(&concerned, &by_cluster).await?;
        let there: Vec<_> = existing
            .iter()
            .filter(|release| P::cluster_of(release).is_none_or(|cluster| scope.contains(&cluster)))
            .cloned()
            .collect();
        let changes = changes::<P>(&wanted, &there, self.object.strategy());
        outcome.write_failures = self.write(changes).await;
        let failing =
            self.context.desk.dirty.failing(reference, scope, failing, |key| selected.contains_key(key));
        outcome.template_failures =
            failing.into_iter().map(|(cluster, message)| ClusterFailure { cluster, message }).collect();
        Self::count_ready(&selected, &by_cluster, &mut outcome);
        self.finish(&selected, outcome).await
    }

    /// Its release objects, by label, in its own namespace.
    fn existing(&self) -> Vec<Arc<P::Release>> {
        let owner = naming::label_value(&self.object.name_any());
        self.context.index.of_owner(&self.object.namespace().unwrap_or_default(), &owner)
    }

    fn selected(&self) -> Result<ClusterMap<Arc<DynamicObject>>, String> {
        let selector = Selector::try_from(self.object.selector().clone())
            .map_err(|error| format!("spec.clusterSelector cannot be used: {error}"))?;
        let own = self.context.clusters.in_namespace(&self.object.namespace().unwrap_or_default());
        Ok(own.into_iter().filter(|(_, cluster)| selector.matches(cluster.labels())).collect())
    }

    /// The release object of each cluster, None where what is there has to stay; and whose template fails, and why.
    async fn wanted(
        &self,
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(ClusterMap<Option<P::Release>>, ClusterMap<String>), Error> {
        let living = selected.iter().filter(|(_, cluster)| !clusters::is_left_alone(cluster));
        let living = living.map(|(key, cluster)| (key.clone(), cluster.clone())).collect();
        let mut values = self.context.values(&self.object, &living, existing).await?;
        let (mut wanted, mut failing) = (BTreeMap::new(), BTreeMap::new());
        for (key, cluster) in selected {
            let object = match values.remove(key) {
                Some(ClusterValues { text: Ok(text), rendered_from }) => {
                    let there = existing.get(key).map(AsRef::as_ref);
                    let cluster = SelectedCluster { key, labels: cluster.labels() };
                    let mut object = self.object.release_object(&cluster, text, there);
                    if let Some(digest) = rendered_from {
                        object.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), digest);
                    }
                    Some(object)
                }
                Some(ClusterValues { text: Err(message), .. }) => {
                    failing.insert(key.clone(), message);
                    None
                }
                None => None,
            };
            wanted.insert(key.clone(), object);
        }
        Ok((wanted, failing))
    }

    async fn write(&self, changes: Vec<Change<P::Release>>) -> Vec<ClusterFailure> {
        let api: Api<P::Release> = self.release_api();
        let api = &api;
        let written = stream::iter(changes).map(|change| async move {
            // The semaphore is never closed.
            let _permit = self.context.writes.acquire().await;
            match change {
                Change::Apply(object) => {
                    let result = overwrite::apply(api, &*object, P::same_request).await;
                    let cluster = P::cluster_of(&object)?;
                    result.err().map(|error| ClusterFailure { cluster, message: error.to_string() })
                }
                Change::Delete(name) => match api.delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => None,
                    Err(error) => {
                        let cluster = ClusterKey::new(self.object.namespace().unwrap_or_default(), name);
                        Some(ClusterFailure { cluster, message: error.to_string() })
                    }
                    Ok(_) => None,
                },
            }
        });
        written.buffer_unordered(WRITES).filter_map(std::future::ready).collect().await
    }

    fn count_ready(
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<P::Release>>,
        outcome: &mut Outcome,
    ) {
        outcome.selected = selected.len();
        for key in selected.keys() {
            match existing.get(key).map(|release| readiness(&**release)) {
                Some(Ok(())) => outcome.ready += 1,
                Some(Err(message)) if !message.is_empty() => {
                    outcome.not_ready.push(ClusterFailure { cluster: key.clone(), message });
                }
                _ => {}
            }
        }
    }

    async fn finish(
        &self,
        selected: &ClusterMap<Arc<DynamicObject>>,
        outcome: Outcome,
    ) -> Result<Action, Error> {
        let old = self.object.status().cloned().unwrap_or_default();
        let generation = self.object.meta().generation;
        let said = report(&outcome, &P::VOCABULARY);
        let status = PlacementStatus {
            conditions: conditions::merge(&old.conditions, said, generation, Timestamp::now()),
            matching_clusters: selected.keys().map(reference).collect(),
            ready_clusters: Some(format!("{}/{}", outcome.ready, outcome.selected)),
            observed_generation: generation,
        };
        if status != old {
            self.warn_once(&old, &status);
            status::write(&self.context.client, &*self.object, &status).await?;
        }
        let failed = !outcome.write_failures.is_empty();
        Ok(if failed {
            Action::requeue(std::time::Duration::from_secs(10))
        } else {
            queue::resync(&*self.object)
        })
    }

    /// A placement that cannot be carried out is an Event, once.
    fn warn_once(&self, old: &PlacementStatus, new: &PlacementStatus) {
        let type_ = P::VOCABULARY.specs_up_to_date;
        let find = |status: &PlacementStatus| status.conditions.iter().find(|c| c.type_ == type_).cloned();
        let (before, now) = (find(old), find(new));
        if let Some(now) = now.filter(|now| now.status == "False")
            && before.is_none_or(|before| before.message != now.message)
        {
            self.context.events.warning(&*self.object, &now.reason, &now.message);
        }
    }

    /// Deletes the releases first, then lets the placement go.
    async fn delete(&self, existing: &[Arc<P::Release>]) -> Result<Action, Error> {
        if existing.is_empty() {
            self.context.desk.dirty.forget(&ObjectRef::from_obj(&*self.object));
            status::let_go(&self.context.client, &*self.object, P::FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let standing = existing.iter().filter(|release| release.meta().deletion_timestamp.is_none());
        let failures = self.write(standing.map(|release| Change::Delete(release.name_any())).collect()).await;
        for failure in failures {
            tracing::warn!(
                placement = self.object.name_any(),
                release = failure.cluster.name,
                "{}",
                failure.message
            );
        }
        Ok(queue::resync(&*self.object))
    }

    fn release_api(&self) -> Api<P::Release> {
        Api::namespaced(self.context.client.clone(), &self.object.namespace().unwrap_or_default())
    }
}

/// Whether a release is ready, or why not as far as it says.
fn readiness(release: &impl ReleaseFace) -> Result<(), String> {
    let status = release.status().filter(|status| status.observed_generation == release.meta().generation);
    match status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready")) {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(ready.message.clone()),
        None => Err(String::new()),
    }
}

fn reference(cluster: &ClusterKey) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}")),
        kind: Some("Cluster".to_owned()),
        namespace: Some(cluster.namespace.clone()),
        name: Some(cluster.name.clone()),
        ..ObjectReference::default()
    }
}
