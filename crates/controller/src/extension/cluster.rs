//! One pass over one Cluster: gives it the extensions it should have without anybody asking, takes back what it does not
//! need any more, and says on the Cluster whether its add-ons are ready.

use std::{collections::BTreeSet, sync::Arc};

use chandler_api::{
    FIELD_MANAGER,
    capi::{CLUSTER_GROUP, CLUSTER_VERSION},
    extensions::{AddonRelease, ExtensionInstance, GIVEN_ANNOTATION, OnClusterDelete, Scope},
};
use chandler_core::{
    cluster_conditions::{
        ADDONS_READY, Addon, addons_ready, addons_upgradable, conditions_of, gates_on_addons, pending_addons,
    },
    cluster_list::{self, EXTENSIONS_ANNOTATION, Listed},
    conditions,
    extension::{ExtensionKey, ImplicitInput, ImplicitRequest, Implied, Origin, implied},
    identity::ClusterKey,
    placement::addon_release_name,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{Selector, SelectorExt as _},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    registry::{RegisteredExtension, Snapshot},
    resolver::{Resolved, Resolver},
};
use crate::{ManagementError, ReconcileError, caches::AllKinds, clusters, events::Events, overwrite};

/// What a pass over a Cluster works with.
pub struct ClusterContext {
    pub client: Client,
    pub resolver: Arc<Resolver>,
    pub all_kinds: AllKinds,
    pub events: Events,
}

/// One pass over one Cluster.
pub async fn reconcile(
    cluster: Arc<DynamicObject>,
    context: Arc<ClusterContext>,
) -> Result<Action, ReconcileError> {
    let Some(key) = clusters::key(&cluster) else { return Ok(Action::await_change()) };
    let published = context.resolver.registry.snapshot();
    let pass = Reconciler { key, cluster, context, published };
    if pass.cluster.metadata.deletion_timestamp.is_some() {
        pass.context.resolver.forget(&pass.key);
        return pass.remove_what_holds().await;
    }
    if clusters::is_left_alone(&pass.cluster) {
        return Ok(Action::await_change());
    }
    pass.run().await
}

struct Reconciler {
    key: ClusterKey,
    cluster: Arc<DynamicObject>,
    context: Arc<ClusterContext>,
    published: Snapshot,
}

impl Reconciler {
    async fn run(&self) -> Result<Action, ReconcileError> {
        let instances = self.context.resolver.instances(&self.key, self.cluster.labels());
        let (listed, mut trouble) = self.listed();
        let defaults = self.defaults();
        let lists = cluster_list::has_list(self.annotation(), &self.cluster.data);
        let concerned = lists || !instances.is_empty() || !defaults.is_empty() || !self.given().is_empty();
        let resolved =
            if concerned { self.context.resolver.resolve(&self.key, &self.cluster).await.ok() } else { None };
        let complete = self.published.is_complete();
        // While something is not known, nothing is given and nothing taken away.
        if let (Some(listed), Some(resolved), true) = (listed, &resolved, complete) {
            let requests: Vec<_> = listed.into_iter().chain(defaults).collect();
            trouble.extend(self.imply(&instances, &requests, resolved).await?);
        } else if (concerned || !complete) && trouble.is_empty() && !self.is_told_ready() {
            trouble.push(Addon::not_ready("extensions", "they are being looked at"));
        }
        if concerned || gates_on_addons(&self.cluster.data) {
            self.tell(resolved.as_deref(), trouble).await?;
        }
        Ok(Action::await_change())
    }

    /// Uninstalls what holds something outside of a Cluster that is deleting.
    async fn remove_what_holds(&self) -> Result<Action, ReconcileError> {
        let api: Api<AddonRelease> = Api::namespaced(self.context.client.clone(), &self.key.namespace);
        for release in self.context.resolver.releases.on_cluster(&self.key) {
            let holds = release.spec.on_cluster_delete == OnClusterDelete::Uninstall;
            if holds && release.meta().deletion_timestamp.is_none() {
                delete(&api, &*release).await?;
            }
        }
        Ok(Action::await_change())
    }

    /// What is a default of clusters like this one.
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
            })
        };
        self.published.all().filter_map(request).collect()
    }

    /// What the Cluster's annotation or its topology lists, and what of it cannot be had. None: it cannot be read.
    fn listed(&self) -> (Option<Vec<ImplicitRequest>>, Vec<Addon>) {
        let (entries, errors) = cluster_list::listed(self.annotation(), &self.cluster.data);
        if !errors.is_empty() {
            let named = "the cluster's list of extensions";
            let trouble = errors.iter().map(|error| Addon::not_ready(named, &error.to_string()));
            return (None, trouble.collect());
        }
        let (mut requests, mut trouble) = (Vec::new(), Vec::new());
        for entry in entries {
            if let Some(namespace) = self.home(&entry) {
                requests.push(ImplicitRequest {
                    origin: Origin::Listed,
                    extension: self.extension(&namespace, &entry.name),
                    range: entry.version,
                    release_namespace: None,
                });
            } else {
                trouble.push(Addon::not_ready(
                    &entry.name,
                    "the cluster lists it, and there is no such Extension",
                ));
            }
        }
        (Some(requests), trouble)
    }

    /// The namespace of an Extension that is listed: beside the cluster, or the platform's.
    fn home(&self, entry: &Listed) -> Option<String> {
        let resolver = &self.context.resolver;
        let beside = Some(&self.key.namespace).filter(|_| entry.scope == Scope::Namespace);
        let mut homes = beside.into_iter().chain([&resolver.platform.namespace]);
        homes.find(|namespace| self.published.is_published(namespace, &entry.name)).cloned()
    }

    fn extension(&self, namespace: &str, name: &str) -> ExtensionKey {
        ExtensionKey::in_namespace(namespace, name, &self.key.namespace)
    }

    fn annotation(&self) -> Option<&str> {
        self.cluster.annotations().get(EXTENSIONS_ANNOTATION).map(String::as_str)
    }

    /// Whether the Cluster says that its add-ons are ready: what is not known takes no word back.
    fn is_told_ready(&self) -> bool {
        conditions::is_true(&conditions_of(&self.cluster.data), ADDONS_READY)
    }

    fn given(&self) -> BTreeSet<ExtensionKey> {
        let given = self.cluster.annotations().get(GIVEN_ANNOTATION).map(String::as_str).unwrap_or_default();
        given.split(',').map(str::trim).filter(|key| !key.is_empty()).map(ExtensionKey::parse).collect()
    }

    /// Gives and takes. What was given just now is not on the cluster yet.
    async fn imply(
        &self,
        instances: &[Arc<ExtensionInstance>],
        requests: &[ImplicitRequest],
        resolved: &Resolved,
    ) -> Result<Vec<Addon>, ReconcileError> {
        let given = self.given();
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
        let todo = implied(&ImplicitInput {
            cluster: &self.key,
            requests,
            given: &given,
            instances: &instances,
            resolution: &resolved.resolution,
            is_published: &is_published,
            is_needed: &is_needed,
            is_placed: &is_placed,
        });
        self.write(&todo, &instances).await?;
        if todo.given != given {
            self.note_given(&todo.given).await?;
        }
        Ok(pending_addons(&todo.apply, &instances))
    }

    fn is_published(&self, key: &ExtensionKey) -> bool {
        let platform = &self.context.resolver.platform.namespace;
        self.published.is_published(key.namespace(&self.key.namespace, platform), &key.local_name())
    }

    async fn write(
        &self,
        todo: &ImplicitChanges,
        instances: &[&ExtensionInstance],
    ) -> Result<(), ReconcileError> {
        let api: Api<ExtensionInstance> = Api::namespaced(self.context.client.clone(), &self.key.namespace);
        for instance in &todo.apply {
            let mut instance = instance.clone();
            instance.metadata.owner_references = Some(vec![self.owner()]);
            let name = instance.name_any();
            let written =
                overwrite::apply(&api, &instance, |there, wanted| there.spec == wanted.spec).await.map_err(
                    |source| ManagementError::Write { kind: "ExtensionInstance", name: name.clone(), source },
                )?;
            if todo.restored.contains(&name) {
                let note = "Restored: this extension is enforced on clusters like this one";
                self.context.events.warning(&written, "Restored", note);
            }
        }
        for instance in instances.iter().filter(|instance| todo.delete.contains(&instance.name_any())) {
            delete(&api, *instance).await?;
        }
        Ok(())
    }

    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}"),
            kind: "Cluster".to_owned(),
            name: self.key.name.clone(),
            uid: self.cluster.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }
    }

    async fn note_given(&self, given: &BTreeSet<ExtensionKey>) -> Result<(), ManagementError> {
        // Sorted as texts, so that the same set always is the same annotation.
        let given: BTreeSet<_> = given.iter().map(ToString::to_string).collect();
        let given = given.into_iter().collect::<Vec<_>>().join(",");
        let patch = json!({"metadata": {"annotations": {GIVEN_ANNOTATION: given}}});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let done = self.api().patch(&self.key.name, &parameters, &Patch::Merge(patch)).await;
        self.written(done)
    }

    /// Writes the conditions, if they are not what they should be.
    async fn tell(&self, resolved: Option<&Resolved>, trouble: Vec<Addon>) -> Result<(), ManagementError> {
        let mut addons = self.context.all_kinds.addons(&self.key, self.cluster.labels());
        if let Some(resolved) = resolved {
            let refused = resolved.resolution.refused.iter();
            addons.extend(refused.map(|(name, why)| Addon::not_ready(name, why)));
        }
        // The watch may have told of it meanwhile.
        let untold: Vec<_> = trouble.into_iter().filter(|one| !addons.contains(one)).collect();
        addons.extend(untold);
        let wanted =
            [Some(addons_ready(&addons)), resolved.map(|resolved| addons_upgradable(&resolved.input))];
        let old = conditions_of(&self.cluster.data);
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        let types: Vec<_> = wanted.iter().map(|wanted| wanted.type_).collect();
        let old: Vec<_> = old.into_iter().filter(|known| types.contains(&known.type_.as_str())).collect();
        let new = conditions::merge(&old, wanted, None, Timestamp::now());
        if new == old {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}"), "kind": "Cluster",
            "metadata": {"name": self.key.name, "uid": self.cluster.uid()}, "status": {"conditions": new},
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let done = self.api().patch_status(&self.key.name, &parameters, &Patch::Apply(patch)).await;
        self.written(done)
    }

    fn written(&self, done: Result<DynamicObject, kube::Error>) -> Result<(), ManagementError> {
        match done {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => {
                Err(ManagementError::Write { kind: "Cluster", name: self.key.name.clone(), source })
            }
        }
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &clusters::resource())
    }
}

/// Deletes an object as it was seen. One that has changed meanwhile is looked at again when the watch shows it: whoever
/// changed it may have made it theirs.
async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), ManagementError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let name = object.name_any();
    let as_seen = Preconditions { resource_version: object.resource_version(), uid: object.uid() };
    match api.delete(&name, &DeleteParams::default().preconditions(as_seen)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(ManagementError::Write { kind: crate::status::kind::<K>(), name, source }),
    }
}
