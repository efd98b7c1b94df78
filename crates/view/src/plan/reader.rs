//! Reads the objects from which plans are made.

use std::{collections::BTreeSet, fmt::Debug};

use chandler_api::extensions::AddonTenancy;
use chandler_controller::{PlannerObjects, cluster_resource};
use chandler_core::change_plan::IgnoredObject;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Error, files::ignored};
use crate::{
    Progress,
    paging::{CLUSTER_API_HINT, CRD_HINT, list_all},
};

/// What was read.
#[derive(Default)]
pub struct ReadObjects {
    pub objects: PlannerObjects,
    /// Objects that cannot be decoded. The manager skips them, too.
    pub undecodable: Vec<IgnoredObject>,
    /// Why the policies of the platform are unknown.
    pub platform_policies: Option<Error>,
    /// Why the Extensions, catalogs or Sources of the platform are unknown.
    pub platform_extensions: Option<Error>,
}

/// Lists the objects of the namespaces of placements, and those of the platform.
pub struct ObjectReader<'a> {
    client: &'a Client,
    namespaces: &'a BTreeSet<String>,
    platform: &'a str,
    progress: &'a dyn Progress,
}

impl<'a> ObjectReader<'a> {
    pub fn new(
        client: &'a Client,
        namespaces: &'a BTreeSet<String>,
        platform: &'a str,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { client, namespaces, platform, progress }
    }

    /// Reads objects; Extensions, catalogs and Sources only `with_extensions`. A failure of a list of the platform's objects is an
    /// error of the placements that need them.
    pub async fn read(&self, with_extensions: bool) -> Result<ReadObjects, Error> {
        let mut read = ReadObjects::default();
        let ReadObjects { objects, undecodable, .. } = &mut read;
        for namespace in self.namespaces {
            let found = self.list(namespace, &cluster_resource(), CLUSTER_API_HINT).await?;
            objects.clusters.extend(found);
            self.add(namespace, &mut objects.charts, undecodable).await?;
            self.add(namespace, &mut objects.chart_releases, undecodable).await?;
            self.add(namespace, &mut objects.instances, undecodable).await?;
            self.add(namespace, &mut objects.releases, undecodable).await?;
            self.add(namespace, &mut objects.policies, undecodable).await?;
            if with_extensions {
                self.add_extensions(namespace, objects, undecodable).await?;
            }
        }
        // Users need not be allowed to list them. Then the plan cannot say that they refuse a release.
        match self.list_tenancies().await {
            Ok(listed) => objects.tenancies = listed,
            Err(_) => undecodable.push(unlisted_tenancies()),
        }
        if self.namespaces.contains(self.platform) {
            return Ok(read);
        }
        let listed = self.add(self.platform, &mut objects.policies, undecodable).await;
        read.platform_policies = listed.err();
        if with_extensions {
            let ReadObjects { objects, undecodable, .. } = &mut read;
            let listed = self.add_extensions(self.platform, objects, undecodable).await;
            read.platform_extensions = listed.err();
        }
        Ok(read)
    }

    async fn list_tenancies(&self) -> kube::Result<Vec<DynamicObject>> {
        let resource = ApiResource::erase::<AddonTenancy>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match list_all(api, ListParams::default(), &resource.plural, self.progress).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn add_extensions(
        &self,
        namespace: &str,
        objects: &mut PlannerObjects,
        undecodable: &mut Vec<IgnoredObject>,
    ) -> Result<(), Error> {
        self.add(namespace, &mut objects.extensions, undecodable).await?;
        self.add(namespace, &mut objects.catalogs, undecodable).await?;
        self.add(namespace, &mut objects.sources, undecodable).await
    }

    /// Adds the objects of a kind. Those that cannot be decoded are skipped and named.
    async fn add<K>(
        &self,
        namespace: &str,
        all: &mut Vec<K>,
        undecodable: &mut Vec<IgnoredObject>,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let resource = ApiResource::erase::<K>(&());
        for mut object in self.list(namespace, &resource, CRD_HINT).await? {
            // Items of lists do not name their kind.
            object.types.get_or_insert_with(|| types(&resource));
            match decode(&object) {
                Ok(decoded) => all.push(decoded),
                Err(_) => undecodable.push(IgnoredObject { may_matter: false, ..ignored(&object) }),
            }
        }
        Ok(())
    }

    async fn list(
        &self,
        namespace: &str,
        resource: &ApiResource,
        hint: &'static str,
    ) -> Result<Vec<DynamicObject>, Error> {
        let objects = format!("{} in namespace {namespace}", resource.plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let all = list_all(api, ListParams::default(), &objects, self.progress).await;
        all.map_err(|error| Error::List { hint, objects, source: Box::new(error) })
    }
}

fn types(resource: &ApiResource) -> kube::core::TypeMeta {
    kube::core::TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }
}

fn decode<K: DeserializeOwned>(object: &DynamicObject) -> serde_json::Result<K> {
    let value: Value = serde_json::to_value(object)?;
    serde_json::from_value(value)
}

/// Names all AddonTenancies as objects that are not part of the plan.
fn unlisted_tenancies() -> IgnoredObject {
    let ApiResource { api_version, kind, .. } = ApiResource::erase::<AddonTenancy>(&());
    let name = "(none of them can be listed, so the plan does not show what they refuse)".to_owned();
    IgnoredObject { api_version, kind, namespace: String::new(), name, may_matter: false }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::AddonPolicy;
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_a_list_are_decoded_or_named() {
        let object = |spec: Value| -> DynamicObject {
            let mut object: DynamicObject = serde_json::from_value(
                json!({"metadata": {"name": "hello", "namespace": "fleet"}, "spec": spec}),
            )
            .unwrap();
            object.types = Some(types(&ApiResource::erase::<AddonPolicy>(&())));
            object
        };
        assert!(decode::<AddonPolicy>(&object(json!({"suspend": true}))).is_ok());
        let invalid = object(json!({"suspend": "text"}));
        assert!(decode::<AddonPolicy>(&invalid).is_err());
        let named = ignored(&invalid);
        assert_eq!((named.kind.as_str(), named.name.as_str()), ("AddonPolicy", "hello"));
    }
}
