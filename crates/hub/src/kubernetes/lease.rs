//! The Lease that shows that this replica is alive. The manager removes the agents of a replica whose Lease has expired.

use std::time::Duration;

use chandler_api::tunnel::HUB_FIELD_MANAGER_PREFIX;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};

/// How long the replica counts as alive after a renewal.
const LEASE_SECONDS: i32 = 60;
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failed renewal.
const RETRY: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The Lease of this replica.
#[derive(Clone)]
pub struct ReplicaLease {
    api: Api<Lease>,
    name: String,
    pod_uid: Option<String>,
    acquired: Timestamp,
}

impl ReplicaLease {
    /// `name` is the name of the replica and of its Pod. With the UID of the Pod, Kubernetes deletes the Lease together with
    /// the Pod.
    pub fn new(client: Client, namespace: &str, name: String, pod_uid: Option<String>) -> Self {
        Self { api: Api::namespaced(client, namespace), name, pod_uid, acquired: Timestamp::now() }
    }

    /// Renews the Lease until the future is dropped.
    pub async fn run(self) {
        loop {
            let pause = match self.renew().await {
                Ok(()) => RENEW_INTERVAL,
                Err(error) => {
                    tracing::warn!(lease = self.name, error, "cannot renew the Lease of this hub; retrying");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Deletes the Lease, because the replica stops.
    pub async fn release(&self) {
        let parameters = DeleteParams::default();
        let request = self.api.delete(&self.name, &parameters);
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, %error, "cannot delete the Lease of this hub");
            }
            Err(_) => tracing::warn!(lease = self.name, "cannot delete the Lease of this hub: no response"),
        }
    }

    async fn renew(&self) -> Result<(), String> {
        let parameters = PatchParams::apply(&format!("{HUB_FIELD_MANAGER_PREFIX}{}", self.name)).force();
        let patch = Patch::Apply(self.lease(Timestamp::now()));
        let request = self.api.patch(&self.name, &parameters, &patch);
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs())),
        }
    }

    fn lease(&self, now: Timestamp) -> Lease {
        let owner = self.pod_uid.as_ref().map(|uid| OwnerReference {
            api_version: Pod::api_version(&()).into_owned(),
            kind: Pod::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        });
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                acquire_time: Some(MicroTime(self.acquired)),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_pod_owns_the_lease() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let lease = |uid: Option<&str>| {
            let uid = uid.map(ToOwned::to_owned);
            ReplicaLease::new(client.clone(), "chandler-system", "hub-1".to_owned(), uid)
                .lease(Timestamp::now())
        };
        let owners = lease(Some("u")).metadata.owner_references.unwrap();
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].name.as_str(), owners[0].uid.as_str()),
            ("Pod", "hub-1", "u")
        );
        assert!(lease(None).metadata.owner_references.is_none());
        assert_eq!(lease(None).spec.unwrap().lease_duration_seconds, Some(LEASE_SECONDS));
    }
}
