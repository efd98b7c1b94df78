//! The Secret with the keys of all tunnels. It is created once, and only the certificate of the hub in it is ever replaced.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::FIELD_MANAGER;
use chandler_core::tunnel::TunnelProblem;
use chandler_tunnel::{
    HubNames, TunnelKeys,
    keys::{HUB_CERTIFICATE, HUB_KEY, KEYS_SECRET, KeysError},
};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::Mutex;

use super::TunnelOptions;
use crate::ManagementError;

/// How long keys are used before the Secret is read again.
const FRESH: Duration = Duration::from_mins(10);
/// How soon a failed read is retried.
const RETRY: Duration = Duration::from_secs(10);

/// Why the keys are unavailable.
#[derive(Debug, thiserror::Error)]
pub enum KeysUnavailable {
    #[error(transparent)]
    Management(#[from] ManagementError),
    /// An administrator has to restore or delete the Secret.
    #[error(transparent)]
    Invalid(#[from] TunnelProblem),
}

/// Reads the keys, and creates and renews what is missing.
pub struct KeysSource {
    client: Client,
    namespace: String,
    names: HubNames,
    cached: Mutex<Option<(Arc<TunnelKeys>, Instant)>>,
}

impl KeysSource {
    pub fn new(client: Client, options: &TunnelOptions) -> Self {
        let namespace = options.namespace.clone();
        let names = HubNames::new(&options.hub_addresses, &namespace);
        Self { client, namespace, names, cached: Mutex::default() }
    }

    /// Returns the keys.
    pub async fn get(&self) -> Result<Arc<TunnelKeys>, KeysUnavailable> {
        let mut cached = self.cached.lock().await;
        if let Some((keys, read)) = &*cached
            && read.elapsed() < FRESH
        {
            return Ok(keys.clone());
        }
        let keys = Arc::new(self.read(Timestamp::now()).await?);
        *cached = Some((keys.clone(), Instant::now()));
        Ok(keys)
    }

    /// Creates the keys before the first tunnel needs them, because the hub does not start without them, and renews the
    /// certificate of the hub.
    pub async fn maintain(&self) {
        loop {
            let wait = match self.get().await {
                Ok(_) => FRESH,
                Err(error) => {
                    tracing::warn!("the keys of the tunnels are unavailable: {error}");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn read(&self, now: Timestamp) -> Result<TunnelKeys, KeysUnavailable> {
        let secret = match self.get_secret().await? {
            Some(secret) => secret,
            None => self.create(now).await?,
        };
        let mut keys = self.parsed(&secret)?;
        let invalid = |error: KeysError| self.invalid(&error);
        if keys.hub_renewal_due(&self.names, now).map_err(invalid)? {
            keys.renew_hub(&self.names, now).map_err(invalid)?;
            self.write_hub(&secret, &keys).await?;
        }
        Ok(keys)
    }

    async fn get_secret(&self) -> Result<Option<Secret>, ManagementError> {
        let what = format!("Secret {}/{KEYS_SECRET}", self.namespace);
        self.api().get_opt(KEYS_SECRET).await.map_err(|source| ManagementError::Read { what, source })
    }

    async fn create(&self, now: Timestamp) -> Result<Secret, KeysUnavailable> {
        let keys = TunnelKeys::generate(&self.names, now).map_err(|error| self.invalid(&error))?;
        let data = keys.to_files().into_iter().map(|(file, content)| (file, ByteString(content)));
        let secret = Secret {
            metadata: ObjectMeta { name: Some(KEYS_SECRET.to_owned()), ..ObjectMeta::default() },
            type_: Some("Opaque".to_owned()),
            data: Some(data.collect()),
            ..Secret::default()
        };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.api().create(&parameters, &secret).await {
            Ok(created) => {
                tracing::info!(
                    namespace = self.namespace,
                    name = KEYS_SECRET,
                    "created the keys of the tunnels"
                );
                Ok(created)
            }
            // Another manager was faster: its keys count.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let exists = self.get_secret().await?;
                exists.ok_or_else(|| write_failed(kube::Error::Api(status)).into())
            }
            Err(source) => Err(write_failed(source).into()),
        }
    }

    /// Writes the certificate of the hub and its key, unless the Secret was changed meanwhile.
    async fn write_hub(&self, read: &Secret, keys: &TunnelKeys) -> Result<(), ManagementError> {
        let mut files = keys.to_files();
        files.retain(|file, _| [HUB_CERTIFICATE, HUB_KEY].contains(&file.as_str()));
        let data: BTreeMap<_, _> =
            files.into_iter().map(|(file, content)| (file, ByteString(content))).collect();
        let patch = json!({"metadata": {"resourceVersion": read.resource_version()}, "data": data});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.api().patch(KEYS_SECRET, &parameters, &Patch::Merge(patch)).await.map_err(write_failed)?;
        tracing::info!("renewed the certificate of the hub");
        Ok(())
    }

    fn parsed(&self, secret: &Secret) -> Result<TunnelKeys, TunnelProblem> {
        let data = secret.data.iter().flatten();
        let files = data.map(|(file, content)| (file.clone(), content.0.clone())).collect();
        TunnelKeys::from_files(&files).map_err(|error| self.invalid(&error))
    }

    fn invalid(&self, error: &KeysError) -> TunnelProblem {
        let secret = format!("{}/{KEYS_SECRET}", self.namespace);
        TunnelProblem::InvalidKeys { secret, why: error.to_string() }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn write_failed(source: kube::Error) -> ManagementError {
    ManagementError::Write { kind: "Secret", name: KEYS_SECRET.to_owned(), source }
}
