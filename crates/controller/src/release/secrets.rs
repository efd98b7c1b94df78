//! Secrets of sources: read one by one, with consent, and once for all releases that ask at the same moment.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{
    failure::{Category, Failure},
    release::{ReleaseKind, SecretKey},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::grants;
use crate::{
    metrics::Metrics,
    single_flight::{MOMENT, SingleFlight},
};

/// The data of a Secret.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// Reads Secrets of the management cluster.
pub struct Secrets {
    client: Client,
    read: SingleFlight<SecretKey, Arc<SecretData>>,
    metrics: Metrics,
}

impl Secrets {
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, read: SingleFlight::new(MOMENT), metrics }
    }

    /// The data of a Secret that a release object of `own_namespace` refers to.
    pub async fn data<R: ReleaseKind>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        category: Category,
    ) -> Result<Arc<SecretData>, Failure> {
        grants::check::<R>(&self.client, own_namespace, secret, category).await?;
        let mut hit = true;
        let read = async {
            hit = false;
            Ok(Arc::new(self.get(secret, category).await?))
        };
        let data = self.read.get(secret, read).await;
        self.metrics.cache("secret", hit);
        data
    }

    /// One value of it.
    pub async fn value<R: ReleaseKind>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        key: &str,
        category: Category,
    ) -> Result<Vec<u8>, Failure> {
        let data = self.data::<R>(own_namespace, secret, category).await?;
        let value = data.get(key).cloned();
        value.ok_or_else(|| unusable(secret, category, &format!("has no key {key}")))
    }

    async fn get(&self, secret: &SecretKey, category: Category) -> Result<SecretData, Failure> {
        let found = Api::<Secret>::namespaced(self.client.clone(), &secret.namespace)
            .get_opt(&secret.name)
            .await
            .map_err(|error| unusable(secret, category, &format!("cannot be read: {error}")))?
            .ok_or_else(|| unusable(secret, category, "does not exist"))?;
        Ok(found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
    }
}

/// A Secret that cannot be used, and why.
pub fn unusable(secret: &SecretKey, category: Category, why: &str) -> Failure {
    Failure::new(category, format!("Secret {}/{} {why}", secret.namespace, secret.name))
}
