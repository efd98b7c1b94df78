//! Secrets of sources: read one by one, with consent, and once for all releases that ask at the same moment.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chandler_core::{
    failure::{Category, Failure},
    release::{ReleaseFace, SecretKey},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::grants;

/// How long what was read serves others. A fleet asks within a moment; a person who mends a Secret takes longer.
const SHARED: Duration = Duration::from_secs(3);

/// The data of a Secret.
pub type SecretData = BTreeMap<String, Vec<u8>>;

type Read = Arc<tokio::sync::Mutex<Option<(Instant, Arc<SecretData>)>>>;

/// Reads Secrets of the management cluster.
pub struct Secrets {
    client: Client,
    read: Mutex<HashMap<SecretKey, Read>>,
}

impl Secrets {
    pub fn new(client: Client) -> Self {
        Self { client, read: Mutex::default() }
    }

    /// The data of a Secret that a release object of `own_namespace` refers to.
    pub async fn data<R: ReleaseFace>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        category: Category,
    ) -> Result<Arc<SecretData>, Failure> {
        grants::check::<R>(&self.client, own_namespace, secret, category).await?;
        let shared = self.shared(secret);
        let mut last = shared.lock().await;
        if let Some((_, data)) = last.as_ref().filter(|(at, _)| at.elapsed() < SHARED) {
            return Ok(data.clone());
        }
        let data = Arc::new(self.get(secret, category).await?);
        *last = Some((Instant::now(), data.clone()));
        Ok(data)
    }

    /// One value of it.
    pub async fn value<R: ReleaseFace>(
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

    fn shared(&self, secret: &SecretKey) -> Read {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody waits for and nobody can use any more is not kept: it is secret.
        read.retain(|_, one| {
            Arc::strong_count(one) > 1
                || one.try_lock().is_ok_and(|last| last.as_ref().is_some_and(|(at, _)| at.elapsed() < SHARED))
        });
        read.entry(secret.clone()).or_default().clone()
    }
}

/// A Secret that cannot be used, and why.
pub fn unusable(secret: &SecretKey, category: Category, why: &str) -> Failure {
    Failure::new(category, format!("Secret {}/{} {why}", secret.namespace, secret.name))
}
