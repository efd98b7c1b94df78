//! Secrets of sources: read one by one, with consent, and once for all releases that ask at the same moment.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{
    failure::{Category, Failure},
    login_hosts::{HOSTS_ANNOTATION, LoginHosts},
    release::{ReleaseKind, SecretKey},
};
use chandler_source::Credentials;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::grants;
use crate::{
    catalog::login_hosts,
    metrics::Metrics,
    single_flight::{MOMENT, SingleFlight},
};

/// The data of a Secret.
type SecretData = BTreeMap<String, Vec<u8>>;

/// A Secret that was read.
struct FoundSecret {
    data: SecretData,
    /// The hosts that its login may be sent to. `None` means any host.
    hosts: Option<LoginHosts>,
}

/// Reads Secrets of the management cluster.
pub struct Secrets {
    client: Client,
    read: SingleFlight<SecretKey, Arc<FoundSecret>>,
    metrics: Metrics,
    /// Whether a login of another namespace must be limited to hosts.
    require_hosts: bool,
}

impl Secrets {
    pub fn new(client: Client, metrics: Metrics, require_hosts: bool) -> Self {
        Self { client, read: SingleFlight::new(MOMENT), metrics, require_hosts }
    }

    /// Returns a Secret that a release object of `own_namespace` refers to.
    async fn found<R: ReleaseKind>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        category: Category,
    ) -> Result<Arc<FoundSecret>, Failure> {
        grants::check::<R>(&self.client, own_namespace, secret, category).await?;
        let mut hit = true;
        let read = async {
            hit = false;
            Ok(Arc::new(self.get(secret, category).await?))
        };
        let found = self.read.get(secret, read).await;
        self.metrics.cache("secret", hit);
        found
    }

    /// Returns the login of a Secret, limited to the hosts that the Secret names. `key` is the key of a Docker config.
    pub async fn credentials<R: ReleaseKind>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        key: &str,
    ) -> Result<Credentials, Failure> {
        let category = Category::GetCredentialsFailed;
        let found = self.found::<R>(own_namespace, secret, category).await?;
        if self.require_hosts && found.hosts.is_none() && secret.namespace != own_namespace {
            let why = format!(
                "has no annotation {HOSTS_ANNOTATION}, so that its login could be sent to any host that an object of namespace \
                 {own_namespace} names; let its owner add the annotation with the hosts of the repository"
            );
            return Err(unusable(secret, category, &why));
        }
        let credentials = Credentials::from_secret(found.data.clone(), key);
        let credentials = credentials.map_err(|error| unusable(secret, category, &error.to_string()))?;
        Ok(credentials.limited_to(found.hosts.clone()))
    }

    /// One value of it.
    pub async fn value<R: ReleaseKind>(
        &self,
        own_namespace: &str,
        secret: &SecretKey,
        key: &str,
        category: Category,
    ) -> Result<Vec<u8>, Failure> {
        let found = self.found::<R>(own_namespace, secret, category).await?;
        let value = found.data.get(key).cloned();
        value.ok_or_else(|| unusable(secret, category, &format!("has no key {key}")))
    }

    async fn get(&self, secret: &SecretKey, category: Category) -> Result<FoundSecret, Failure> {
        let found = Api::<Secret>::namespaced(self.client.clone(), &secret.namespace)
            .get_opt(&secret.name)
            .await
            .map_err(|error| unusable(secret, category, &format!("cannot be read: {error}")))?
            .ok_or_else(|| unusable(secret, category, "does not exist"))?;
        let hosts = login_hosts(&found);
        let data = found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        Ok(FoundSecret { data, hosts })
    }
}

/// A Secret that cannot be used, and why.
pub fn unusable(secret: &SecretKey, category: Category, why: &str) -> Failure {
    Failure::new(category, format!("Secret {}/{} {why}", secret.namespace, secret.name))
}
