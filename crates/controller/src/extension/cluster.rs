//! Reconciles a Cluster: creates and deletes its implicit ExtensionInstances, and writes the conditions of its add-ons.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chandler_api::{
    FIELD_MANAGER,
    capi::{CLUSTER_GROUP, CLUSTER_VERSION},
    extensions::{ExtensionInstance, GIVEN_ANNOTATION, Scope},
};
use chandler_core::{
    cluster_conditions::{
        ADDONS_READY, Addon, addons_ready, addons_upgradable, conditions_of, gates_on_addons, pending_addons,
    },
    cluster_list::{self, EXTENSIONS_ANNOTATION, Listed},
    conditions,
    extension::{ExtensionKey, ImplicitChanges, ImplicitInput, ImplicitRequest, Origin, implicit_changes},
    identity::ClusterKey,
    placement::{KubernetesFollower, addon_release_name},
};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{Selector, SelectorExt as _},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    implicit_instances::{Applied, ImplicitInstances, provisioned_after},
    registry::{RegisteredExtension, Snapshot},
    resolver::{ResolveError, Resolved, Resolver},
};
use crate::{
    ManagementError, ReconcileError, caches::AllKinds, clusters, error::write_result, events::Events, queue,
    tunnel::Tunnels,
};

/// Delay before a Cluster is reconciled again whose extensions could not be resolved because a request failed, or whose
/// implicit instances could not be written because a cache is outdated.
const RETRY: Duration = Duration::from_secs(10);

/// The context of the reconciler of Clusters.
pub struct ClusterContext {
    pub client: Client,
    pub resolver: Arc<Resolver>,
    pub all_kinds: AllKinds,
    pub events: Events,
    pub tunnels: Tunnels,
}

/// Reconciles a Cluster.
pub async fn reconcile(
    cluster: Arc<DynamicObject>,
    context: Arc<ClusterContext>,
) -> Result<Action, ReconcileError> {
    let Some(key) = clusters::key(&cluster) else { return Ok(Action::await_change()) };
    let published = context.resolver.registry.snapshot();
    let reconciler = Reconciler { key, cluster, context, published };
    if reconciler.cluster.metadata.deletion_timestamp.is_some() {
        reconciler.context.resolver.forget(&reconciler.key);
        return reconciler.remove_external_resources().await;
    }
    if clusters::is_paused_or_deleting(&reconciler.cluster) {
        return Ok(Action::await_change());
    }
    reconciler.run().await
}

struct Reconciler {
    key: ClusterKey,
    cluster: Arc<DynamicObject>,
    context: Arc<ClusterContext>,
    published: Snapshot,
}

/// What is known after the implicit instances have been written.
struct Written {
    /// The instances that are not installed yet.
    pending: Vec<Addon>,
    /// Whether some were not written because the cache of instances is outdated.
    is_outdated: bool,
}

impl Reconciler {
    async fn run(&self) -> Result<Action, ReconcileError> {
        let instances = self.context.resolver.instances(&self.key, self.cluster.labels());
        let (listed, mut problems) = self.listed();
        let defaults = self.defaults();
        let lists = cluster_list::has_list(self.annotation(), &self.cluster.data);
        let relevant = lists
            || !instances.is_empty()
            || !defaults.is_empty()
            || !self.provisioned().is_empty()
            || !self.followers().is_empty();
        let (resolved, failed) = if relevant {
            match self.context.resolver.resolve(&self.key, &self.cluster).await {
                Ok(resolved) => (Some(resolved), None),
                Err(error) => (None, Some(error)),
            }
        } else {
            (None, None)
        };
        let complete =
            self.published.is_complete_in(&[&self.key.namespace, &self.context.resolver.platform.namespace]);
        let mut is_outdated = false;
        // While sources are read for the first time, and without a resolution, instances are neither created nor deleted.
        if let (Some(listed), Some(resolved), true) = (listed, &resolved, complete) {
            let requests: Vec<_> = listed.into_iter().chain(defaults).collect();
            let written = self.apply_implicit_changes(&instances, &requests, resolved).await?;
            // Paused, deleted and replaced Clusters get no conditions, either.
            let Some(written) = written else { return Ok(Action::requeue(RETRY)) };
            problems.extend(written.pending);
            is_outdated = written.is_outdated;
        } else if (relevant || !complete) && problems.is_empty() && !self.is_reported_ready() {
            problems.push(Addon::not_ready("extensions", "they are being resolved"));
        }
        if relevant || gates_on_addons(&self.cluster.data) {
            self.update_conditions(resolved.as_deref(), problems).await?;
        }
        Ok(next(&self.cluster, failed.as_ref(), is_outdated))
    }

    /// Uninstalls the releases that own resources outside of a Cluster that is being deleted.
    async fn remove_external_resources(&self) -> Result<Action, ReconcileError> {
        let remaining = self.context.all_kinds.removed_first(&self.key).into_iter();
        for release in remaining.filter(|release| !release.deleting) {
            let client = self.context.client.clone();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &self.key.namespace, &release.resource);
            let deleted = delete_unchanged(&api, &release.name, release.unchanged).await;
            deleted.map_err(|source| ManagementError::Write {
                kind: release.kind,
                name: release.name,
                source,
            })?;
        }
        Ok(next(&self.cluster, None, false))
    }

    /// Returns the add-ons whose versions follow the Kubernetes version without an Extension.
    fn followers(&self) -> Vec<KubernetesFollower> {
        let uid = self.cluster.uid();
        self.context.all_kinds.kubernetes_followers(&self.key, self.cluster.labels(), uid.as_deref())
    }

    /// Returns the default extensions of the cluster.
    fn defaults(&self) -> Vec<ImplicitRequest> {
        let resolver = &self.context.resolver;
        let request = |registered: &Arc<RegisteredExtension>| {
            let install = registered.extension.spec.install.as_ref()?;
            let namespace = registered.extension.namespace()?;
            let reaches = namespace == self.key.namespace || namespace == resolver.platform.namespace;
            let selector = Selector::try_from(install.default.clone()).ok()?;
            (reaches && selector.matches(self.cluster.labels())).then(|| ImplicitRequest {
                origin: if install.enforced { Origin::Enforced } else { Origin::Default },
                extension: self.extension(&namespace, &registered.extension.name_any()),
                range: None,
                release_namespace: install.namespace.clone(),
                parameters: install.parameters.clone(),
                parameters_template: install.parameters_template.clone(),
            })
        };
        self.published.all().filter_map(request).collect()
    }

    /// Returns the extensions that the Cluster's annotation or topology lists, and the problems with them. The list is
    /// `None` if it is invalid.
    fn listed(&self) -> (Option<Vec<ImplicitRequest>>, Vec<Addon>) {
        let (entries, errors) = cluster_list::listed(self.annotation(), &self.cluster.data);
        if !errors.is_empty() {
            let named = "the Cluster's list of extensions";
            let problems = errors.iter().map(|error| Addon::not_ready(named, &error.to_string()));
            return (None, problems.collect());
        }
        let (mut requests, mut problems) = (Vec::new(), Vec::new());
        for entry in entries {
            if let Some(namespace) = self.namespace_of(&entry) {
                requests.push(ImplicitRequest {
                    origin: Origin::Listed,
                    extension: self.extension(&namespace, &entry.name),
                    range: entry.version,
                    release_namespace: None,
                    parameters: entry.parameters,
                    parameters_template: entry.parameters_template,
                });
            } else {
                problems.push(Addon::not_ready(
                    &entry.name,
                    "the Cluster lists it, but there is no such Extension",
                ));
            }
        }
        (Some(requests), problems)
    }

    /// Returns the namespace of a listed Extension: that of the Cluster, else that of the platform.
    fn namespace_of(&self, entry: &Listed) -> Option<String> {
        let resolver = &self.context.resolver;
        let own = Some(&self.key.namespace).filter(|_| entry.scope == Scope::Namespace);
        let mut namespaces = own.into_iter().chain([&resolver.platform.namespace]);
        namespaces.find(|namespace| self.published.exists(namespace, &entry.name)).cloned()
    }

    fn extension(&self, namespace: &str, name: &str) -> ExtensionKey {
        ExtensionKey::in_namespace(namespace, name, &self.key.namespace)
    }

    fn annotation(&self) -> Option<&str> {
        self.cluster.annotations().get(EXTENSIONS_ANNOTATION).map(String::as_str)
    }

    /// Returns whether the condition `AddonsReady` is true. It is kept while the extensions are unknown.
    fn is_reported_ready(&self) -> bool {
        conditions::is_true(&conditions_of(&self.cluster.data), ADDONS_READY)
    }

    fn provisioned(&self) -> BTreeSet<ExtensionKey> {
        let provisioned =
            self.cluster.annotations().get(GIVEN_ANNOTATION).map(String::as_str).unwrap_or_default();
        provisioned.split(',').map(str::trim).filter(|key| !key.is_empty()).map(ExtensionKey::parse).collect()
    }

    /// Creates and deletes implicit instances. Returns `None` if nothing was written because the cached Cluster is outdated.
    async fn apply_implicit_changes(
        &self,
        instances: &[Arc<ExtensionInstance>],
        requests: &[ImplicitRequest],
        resolved: &Resolved,
    ) -> Result<Option<Written>, ReconcileError> {
        let provisioned = self.provisioned();
        let instances: Vec<_> = instances.iter().map(AsRef::as_ref).collect();
        let releases = self.context.resolver.releases.on_cluster(&self.key);
        let is_published = |key: &ExtensionKey| self.is_published(key);
        let is_needed = |instance: &ExtensionInstance| {
            let name = addon_release_name(instance, &self.key.name);
            releases.iter().any(|release| release.spec.depends_on.contains(&name))
        };
        let is_placed = |instance: &ExtensionInstance| {
            let name = addon_release_name(instance, &self.key.name);
            releases.iter().any(|release| release.name_any() == name)
        };
        let changes = implicit_changes(&ImplicitInput {
            cluster: &self.key,
            requests,
            provisioned: &provisioned,
            instances: &instances,
            resolution: &resolved.resolution,
            has_unread: resolved.input.has_unread(),
            is_published: &is_published,
            is_needed: &is_needed,
            is_placed: &is_placed,
        });
        let Applied::Except(refused) = self.implicit(&instances).apply(&changes).await? else {
            return Ok(None);
        };
        self.delete_obsolete(&changes, &instances).await?;
        let recorded = provisioned_after(&changes, &provisioned, &refused, &self.key.name);
        if recorded != provisioned {
            self.write_provisioned(&recorded).await?;
        }
        let pending = pending_addons(&changes.apply, &instances);
        Ok(Some(Written { pending, is_outdated: !refused.is_empty() }))
    }

    fn implicit<'a>(&'a self, cached: &'a [&'a ExtensionInstance]) -> ImplicitInstances<'a> {
        ImplicitInstances {
            client: &self.context.client,
            events: &self.context.events,
            key: &self.key,
            cluster: &self.cluster,
            cached,
        }
    }

    fn is_published(&self, key: &ExtensionKey) -> bool {
        let platform = &self.context.resolver.platform.namespace;
        self.published.is_published(key.namespace(&self.key.namespace, platform), &key.local_name())
    }

    async fn delete_obsolete(
        &self,
        changes: &ImplicitChanges,
        instances: &[&ExtensionInstance],
    ) -> Result<(), ManagementError> {
        let api: Api<ExtensionInstance> = Api::namespaced(self.context.client.clone(), &self.key.namespace);
        for instance in instances.iter().filter(|instance| changes.delete.contains(&instance.name_any())) {
            delete(&api, *instance).await?;
        }
        Ok(())
    }

    async fn write_provisioned(&self, provisioned: &BTreeSet<ExtensionKey>) -> Result<(), ManagementError> {
        // Sorted by text, so that equal sets give equal annotations.
        let provisioned: BTreeSet<_> = provisioned.iter().map(ToString::to_string).collect();
        let provisioned = provisioned.into_iter().collect::<Vec<_>>().join(",");
        // With the uid, because these extensions were not installed on a new Cluster of the same name.
        let uid = self.cluster.uid();
        let patch = json!({"metadata": {"uid": uid, "annotations": {GIVEN_ANNOTATION: provisioned}}});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let result = self.api().patch(&self.key.name, &parameters, &Patch::Merge(patch)).await;
        write_result("Cluster", self.key.name.clone(), result).map(drop)
    }

    /// Writes the conditions if they have changed.
    async fn update_conditions(
        &self,
        resolved: Option<&Resolved>,
        problems: Vec<Addon>,
    ) -> Result<(), ManagementError> {
        let mut addons = self.context.all_kinds.addons(&self.key, self.cluster.labels());
        if let Some(resolved) = resolved {
            let refused = resolved.resolution.refused.iter();
            addons.extend(refused.map(|(name, reason)| Addon::not_ready(name, reason)));
        }
        // The watch may have shown some of them in the meantime.
        let missing: Vec<_> = problems.into_iter().filter(|problem| !addons.contains(problem)).collect();
        addons.extend(missing);
        let tunnel = self.context.tunnels.problem(&self.cluster);
        let ready = addons_ready(&addons, tunnel.as_deref());
        let new = [
            Some(ready),
            resolved.map(|resolved| {
                addons_upgradable(&resolved.input, &resolved.next_upgrade, &self.followers())
            }),
        ];
        let old = conditions_of(&self.cluster.data);
        let new: Vec<_> = new.into_iter().flatten().collect();
        let types: Vec<_> = new.iter().map(|condition| condition.type_).collect();
        let old: Vec<_> = old.into_iter().filter(|known| types.contains(&known.type_.as_str())).collect();
        let new = conditions::merge(&old, new, None, Timestamp::now());
        if new == old {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}"), "kind": "Cluster",
            "metadata": {"name": self.key.name, "uid": self.cluster.uid()}, "status": {"conditions": new},
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let result = self.api().patch_status(&self.key.name, &parameters, &Patch::Apply(patch)).await;
        write_result("Cluster", self.key.name.clone(), result).map(drop)
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &clusters::resource())
    }
}

/// Returns when a Cluster is reconciled again without an event: at the next resync, or soon if a request has failed or a
/// cache is outdated.
fn next(cluster: &DynamicObject, failed: Option<&ResolveError>, is_outdated: bool) -> Action {
    match failed {
        _ if is_outdated => Action::requeue(RETRY),
        Some(ResolveError::UnknownKubernetes(why)) if why.is_transient() => Action::requeue(RETRY),
        _ => queue::resync(cluster),
    }
}

/// Deletes an object unless it has changed since the watch showed it. A change triggers another reconcile, because a
/// user may have taken the object over.
async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), ManagementError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let name = object.name_any();
    let unchanged = Preconditions { resource_version: object.resource_version(), uid: object.uid() };
    delete_unchanged(api, &name, unchanged).await.map_err(|source| ManagementError::Write {
        kind: crate::status::kind::<K>(),
        name,
        source,
    })
}

async fn delete_unchanged<K>(api: &Api<K>, name: &str, unchanged: Preconditions) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default().preconditions(unchanged)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{extension::UnknownKubernetes, references::ReferenceError};

    #[test]
    fn a_cluster_is_reconciled_again_without_an_event() {
        let mut cluster = DynamicObject::new("blue", &clusters::resource());
        cluster.metadata.uid = Some("1".to_owned());
        let unknown = |why| ResolveError::UnknownKubernetes(why);
        let not_listed = ReferenceError::NotListed { group: "example".to_owned(), kind: "Plane".to_owned() };
        let rows = [
            (None, false, queue::resync(&cluster)),
            (None, true, Action::requeue(RETRY)),
            (Some(ResolveError::Pending), false, queue::resync(&cluster)),
            (Some(unknown(UnknownKubernetes::NotNamed)), false, queue::resync(&cluster)),
            (Some(unknown(not_listed.into())), false, Action::requeue(RETRY)),
        ];
        for (failed, is_outdated, expected) in rows {
            assert_eq!(next(&cluster, failed.as_ref(), is_outdated), expected, "{failed:?} {is_outdated}");
            assert_ne!(expected, Action::await_change());
        }
    }
}
