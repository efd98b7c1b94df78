//! Applies implicit ExtensionInstances.
//!
//! An ExtensionInstance or a Cluster that was moved to another management cluster, or deleted, may still be cached: see
//! [`crate::watch`]. An apply must not create an instance again because of that.

use std::collections::BTreeSet;

use chandler_api::extensions::ExtensionInstance;
use chandler_core::{
    extension::{ExtensionKey, ImplicitChanges, implicit_instance_name},
    identity::{ClusterKey, cluster_owner},
};
use kube::{Api, Client, ResourceExt as _, api::DynamicObject};

use crate::{ManagementError, clusters, events::Events, overwrite};

/// What was applied.
#[derive(Debug, PartialEq, Eq)]
pub enum Applied {
    /// Everything except for the instances with these names, which are no longer as the cache shows them.
    Except(BTreeSet<String>),
    /// Nothing, because the cached Cluster is outdated.
    Nothing,
}

/// The implicit instances of a Cluster.
pub struct ImplicitInstances<'a> {
    pub client: &'a Client,
    pub events: &'a Events,
    pub key: &'a ClusterKey,
    /// The cached Cluster.
    pub cluster: &'a DynamicObject,
    /// The cached instances that select the Cluster.
    pub cached: &'a [&'a ExtensionInstance],
}

impl ImplicitInstances<'_> {
    /// Applies instances. The Cluster is read first if one of them may have existed before.
    pub async fn apply(&self, changes: &ImplicitChanges) -> Result<Applied, ManagementError> {
        if !changes.maybe_recreated.is_empty() && !self.is_cluster_current().await? {
            tracing::info!(cluster = %self.key, "no ExtensionInstance is applied: the cached Cluster is outdated");
            return Ok(Applied::Nothing);
        }
        let mut refused = BTreeSet::new();
        for instance in &changes.apply {
            let name = instance.name_any();
            match self.apply_one(instance).await? {
                Some(written) if changes.restored.contains(&name) => {
                    let note = "Restored, because this extension is enforced on this cluster";
                    self.events.warning(&written, "Restored", note);
                }
                Some(_) => {}
                None => {
                    refused.insert(name);
                }
            }
        }
        Ok(Applied::Except(refused))
    }

    /// Returns whether the same Cluster still exists and is neither paused nor being deleted.
    async fn is_cluster_current(&self) -> Result<bool, ManagementError> {
        let read = clusters::read(self.client, self.key).await?;
        Ok(read.is_some_and(|read| clusters::is_current(self.cluster, &read)))
    }

    /// Applies an instance and returns the result. `None` means that it is no longer as the cache shows it.
    async fn apply_one(
        &self,
        instance: &ExtensionInstance,
    ) -> Result<Option<ExtensionInstance>, ManagementError> {
        let api: Api<ExtensionInstance> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let (instance, name) = (self.with_metadata(instance), instance.name_any());
        match overwrite::apply(&api, &instance, |existing, desired| existing.spec == desired.spec).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if overwrite::is_uid_mismatch(&error) => {
                tracing::info!(cluster = %self.key, name, %error, "an ExtensionInstance is not applied");
                Ok(None)
            }
            Err(source) => Err(ManagementError::Write { kind: "ExtensionInstance", name, source }),
        }
    }

    /// Returns an instance with its owner, and with the uid of the cached one: the API server does not create an object with a uid.
    fn with_metadata(&self, instance: &ExtensionInstance) -> ExtensionInstance {
        let name = instance.name_any();
        let cached = self.cached.iter().find(|cached| cached.name_any() == name);
        let mut instance = instance.clone();
        instance.metadata.uid = cached.and_then(|cached| cached.uid());
        instance.metadata.owner_references =
            Some(vec![cluster_owner(&self.key.name, &self.cluster.uid().unwrap_or_default())]);
        instance
    }
}

/// Returns the extensions to record as provisioned after all changes except for the `refused` instances have been applied.
///
/// An extension with such an instance is not recorded, because it would never be created. If it was recorded before, it stays: it
/// was created then, and a user may have deleted it.
pub fn provisioned_after(
    changes: &ImplicitChanges,
    before: &BTreeSet<ExtensionKey>,
    refused: &BTreeSet<String>,
    cluster: &str,
) -> BTreeSet<ExtensionKey> {
    let is_refused =
        |key: &ExtensionKey| refused.contains(&implicit_instance_name(&key.local_name(), cluster));
    changes.provisioned.iter().filter(|&key| before.contains(key) || !is_refused(key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clusters::tests::{PATH, cluster},
        fake_api_server::FakeApiServer,
    };

    const INSTANCES: &str = "/apis/chandler.dev/v1alpha1/namespaces/fleet/extensioninstances";

    fn path(name: &str) -> String {
        format!("{INSTANCES}/{name}")
    }

    fn instance(name: &str, version: &str, uid: Option<&str>) -> Value {
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": name, "namespace": "fleet", "uid": uid},
            "spec": {"extension": {"name": name}, "version": version, "clusters": {"name": "blue"}},
        })
    }

    fn typed(instance: Value) -> ExtensionInstance {
        serde_json::from_value(instance).unwrap()
    }

    /// Returns changes that apply version 2 of instances.
    fn changes(apply: &[&str], maybe_recreated: &[&str]) -> ImplicitChanges {
        ImplicitChanges {
            apply: apply.iter().map(|name| typed(instance(name, "2", None))).collect(),
            maybe_recreated: maybe_recreated.iter().map(|&name| name.to_owned()).collect(),
            ..ImplicitChanges::default()
        }
    }

    async fn apply(
        server: &FakeApiServer,
        changes: &ImplicitChanges,
        cached: &[&ExtensionInstance],
    ) -> Result<Applied, ManagementError> {
        let cluster: DynamicObject = serde_json::from_value(cluster()).unwrap();
        let implicit = ImplicitInstances {
            client: &server.client(),
            events: &Events::discard(),
            key: &ClusterKey::new("fleet", "blue"),
            cluster: &cluster,
            cached,
        };
        implicit.apply(changes).await
    }

    fn except(names: &[&str]) -> Applied {
        Applied::Except(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn version(server: &FakeApiServer, name: &str) -> Option<Value> {
        server.get(&path(name)).map(|stored| stored["spec"]["version"].clone())
    }

    #[tokio::test]
    async fn an_update_does_not_create_an_instance_that_only_the_cache_still_shows() {
        let cached = typed(instance("cni", "1", Some("5")));
        let rows = [
            ("it exists", Some("5"), except(&[]), Some("2")),
            ("it was moved or deleted", None, except(&["cni"]), None),
            ("another one of the same name", Some("6"), except(&["cni"]), Some("1")),
        ];
        for (what, uid, expected, stored) in rows {
            let server = FakeApiServer::default();
            if uid.is_some() {
                server.put(&path("cni"), instance("cni", "1", uid));
            }
            let applied = apply(&server, &changes(&["cni", "dns"], &[]), &[&cached]).await.unwrap();
            assert_eq!(applied, expected, "{what}");
            assert_eq!(version(&server, "cni"), stored.map(Value::from), "{what}");
            assert_eq!(version(&server, "dns"), Some(json!("2")), "{what}: the others are applied");
        }
    }

    #[tokio::test]
    async fn an_instance_is_recreated_only_if_the_cluster_still_exists_and_is_not_paused() {
        let with = |field: &str, name: &str, value: Value| {
            let mut cluster = cluster();
            cluster[field][name] = value;
            Some(cluster)
        };
        let rows = [
            ("as cached", Some(cluster()), true),
            ("moved or deleted", None, false),
            ("another one of the same name", with("metadata", "uid", json!("8")), false),
            ("paused", with("spec", "paused", json!(true)), false),
            ("being deleted", with("metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")), false),
        ];
        for (what, stored, expected) in rows {
            let server = FakeApiServer::default();
            if let Some(stored) = stored {
                server.put(PATH, stored);
            }
            let applied = apply(&server, &changes(&["dns", "cni", "db"], &["cni", "db"]), &[]).await;
            let expected_result = if expected { except(&[]) } else { Applied::Nothing };
            assert_eq!(applied.unwrap(), expected_result, "{what}");
            let reads = server.requests().into_iter().filter(|request| request.method == Method::GET);
            assert_eq!(reads.count(), 1, "{what}: the Cluster is read once");
            for name in ["dns", "cni", "db"] {
                assert_eq!(version(&server, name).is_some(), expected, "{what}: {name}");
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_recreated_if_the_cluster_cannot_be_read() {
        let server = FakeApiServer::default();
        server.fail_reads(PATH);
        assert!(apply(&server, &changes(&["cni"], &["cni"]), &[]).await.is_err());
        assert!(server.take_writes().is_empty());
    }

    #[tokio::test]
    async fn the_first_instance_is_created_without_another_request_and_is_owned_by_the_cluster() {
        let server = FakeApiServer::default();
        assert_eq!(apply(&server, &changes(&["cni"], &[]), &[]).await.unwrap(), except(&[]));
        assert_eq!(server.requests().len(), 1);
        let created = server.get(&path("cni")).unwrap();
        let owner = &created["metadata"]["ownerReferences"][0];
        assert_eq!(json!([owner["kind"], owner["name"], owner["uid"]]), json!(["Cluster", "blue", "7"]));
    }

    #[test]
    fn an_extension_whose_instance_was_refused_is_recorded_only_if_it_was_before() {
        let keys =
            |names: &[&str]| -> BTreeSet<_> { names.iter().map(|name| ExtensionKey::parse(name)).collect() };
        let changes = ImplicitChanges {
            provisioned: keys(&["cni", "platform/dns", "logs"]),
            ..ImplicitChanges::default()
        };
        let refused = |names: &[&str]| -> BTreeSet<_> {
            names.iter().map(|name| implicit_instance_name(name, "blue")).collect()
        };
        let after = |before: &[&str], names: &[&str]| {
            provisioned_after(&changes, &keys(before), &refused(names), "blue")
        };
        assert_eq!(after(&["old"], &[]), changes.provisioned);
        assert_eq!(after(&["cni"], &["cni", "dns"]), keys(&["cni", "logs"]));
    }
}
