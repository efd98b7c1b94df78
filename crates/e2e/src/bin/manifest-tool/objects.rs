//! The objects of a release.

use std::collections::HashMap;

use chandler_tool::generated::tool::{ObjectRef, Release};
use kube::{
    Api, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
        ValidationDirective,
    },
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde::{Deserialize, Serialize};

use crate::{
    cluster::Cluster,
    failure::{Category, Failure},
};

/// Annotation with the namespace and name of the release that an object belongs to.
const OWNER: &str = "manifest-tool.chandler.dev/release";
const FIELD_MANAGER: &str = "manifest-tool";

/// Names an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    api_version: String,
    kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(default)]
    namespace: String,
    name: String,
}

impl Reference {
    pub fn message(&self) -> ObjectRef {
        let Self { api_version, kind, namespace, name } = self.clone();
        ObjectRef { api_version, kind, namespace, name }
    }

    fn display(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// An object that the cluster can serve.
#[derive(Clone, Debug)]
pub struct Served {
    pub reference: Reference,
    object: DynamicObject,
    api: Api<DynamicObject>,
}

/// The objects of a release on a cluster.
pub struct Objects<'a> {
    cluster: &'a Cluster,
    release: &'a Release,
    kinds: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl<'a> Objects<'a> {
    pub fn new(cluster: &'a Cluster, release: &'a Release) -> Self {
        Self { cluster, release, kinds: HashMap::new() }
    }

    /// Finds the API of an object and sets its namespace and owner.
    pub async fn prepare(&mut self, mut object: DynamicObject) -> Result<Served, Failure> {
        let invalid = |what: &str| {
            Failure::new(Category::InvalidPackage, format!("an object of the package has no {what}"))
        };
        let types = object.types.clone().ok_or_else(|| invalid("kind"))?;
        let name = object.metadata.name.clone().ok_or_else(|| invalid("name"))?;
        let namespace = object.namespace().unwrap_or_else(|| self.release.namespace.clone());
        let mut reference = Reference { api_version: types.api_version, kind: types.kind, namespace, name };
        let (resource, scope) = self.kind(&reference).await?;
        if scope == Scope::Cluster {
            reference.namespace.clear();
        }
        object.metadata.namespace = (scope == Scope::Namespaced).then(|| reference.namespace.clone());
        object.annotations_mut().insert(OWNER.to_owned(), self.owner());
        let api = self.api(&resource, &reference);
        Ok(Served { reference, object, api })
    }

    async fn kind(&mut self, reference: &Reference) -> Result<(ApiResource, Scope), Failure> {
        let (group, version) = reference.api_version.split_once('/').unwrap_or(("", &reference.api_version));
        let kind = GroupVersionKind::gvk(group, version, &reference.kind);
        if let Some(known) = self.kinds.get(&kind) {
            return Ok(known.clone());
        }
        let found = self.cluster.request(discovery::pinned_kind(&self.cluster.client, &kind)).await;
        let (resource, capabilities) = found.map_err(|failure| failure.about(&reference.display()))?;
        self.kinds.insert(kind, (resource.clone(), capabilities.scope.clone()));
        Ok((resource, capabilities.scope))
    }

    fn api(&self, resource: &ApiResource, reference: &Reference) -> Api<DynamicObject> {
        let client = self.cluster.client.clone();
        if reference.namespace.is_empty() {
            Api::all_with(client, resource)
        } else {
            Api::namespaced_with(client, &reference.namespace, resource)
        }
    }

    fn owner(&self) -> String {
        format!("{}/{}", self.release.namespace, self.release.name)
    }

    fn owns(&self, object: &impl kube::ResourceExt) -> bool {
        object.annotations().get(OWNER).is_some_and(|owner| *owner == self.owner())
    }

    /// Fails with CONFLICT if the object exists and does not belong to the release.
    pub async fn check_owner(&self, served: &Served) -> Result<(), Failure> {
        let name = &served.reference.name;
        let found = self.cluster.request(served.api.get_metadata_opt(name)).await;
        let found = found.map_err(|failure| failure.about(&served.reference.display()))?;
        if found.is_none_or(|object| self.owns(&object)) {
            return Ok(());
        }
        let message = "the object exists and belongs to no release or to another one";
        Err(Failure::new(Category::Conflict, message).about(&served.reference.display()))
    }

    pub async fn apply(&self, served: &Served, force: bool) -> Result<(), Failure> {
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            force,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let (name, patch) = (&served.reference.name, Patch::Apply(&served.object));
        let applied = self.cluster.request(served.api.patch(name, &parameters, &patch)).await;
        applied.map(drop).map_err(|failure| failure.about(&served.reference.display()))
    }

    /// Deletes an object if it exists and belongs to the release.
    pub async fn delete(&mut self, reference: &Reference) -> Result<(), Failure> {
        let about = |failure: Failure| failure.about(&reference.display());
        let resource = match self.kind(reference).await {
            Ok((resource, _)) => resource,
            // Without the kind there are no objects of it.
            Err(failure) if failure.category == Category::Rejected => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let api = self.api(&resource, reference);
        let found = self.cluster.request(api.get_metadata_opt(&reference.name)).await.map_err(about)?;
        let Some(found) = found.filter(|object| self.owns(object)) else { return Ok(()) };
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions { uid: found.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.cluster.request(api.delete(&reference.name, &parameters)).await {
            Err(failure) if failure.missing => Ok(()),
            other => other.map(drop).map_err(about),
        }
    }
}
