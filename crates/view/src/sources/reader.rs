//! Reads Sources and Syncs from the management cluster.

use std::fmt::Debug;

use chandler_api::extensions::{Source, SyncObject};
use kube::{Api, Client, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::{Progress, paging::list_all};

/// Sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listing {objects}; are Chandler's CRDs installed (`chandler crds`), and may you list them?")]
    List { objects: String, source: Box<kube::Error> },
    #[error("reading Source {namespace}/{name}")]
    Read { namespace: String, name: String, source: Box<kube::Error> },
    #[error(
        "there is no Source {name} in namespace {namespace}; list Sources with `chandler source get --all-namespaces`"
    )]
    NotFound { namespace: String, name: String },
}

/// Returns a Source.
pub async fn read_source(client: &Client, namespace: &str, name: &str) -> Result<Source, Error> {
    let api: Api<Source> = Api::namespaced(client.clone(), namespace);
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    match api.get_opt(&name).await {
        Ok(Some(source)) => Ok(source),
        Ok(None) => Err(Error::NotFound { namespace, name }),
        Err(error) => Err(Error::Read { namespace, name, source: Box::new(error) }),
    }
}

/// Lists Sources and Syncs.
pub struct SourceReader<'a> {
    pub client: &'a Client,
    /// `None` means all namespaces.
    pub namespace: Option<&'a str>,
    pub progress: &'a dyn Progress,
}

impl SourceReader<'_> {
    /// Lists the Sources, sorted by namespace and name.
    pub async fn sources(&self) -> Result<Vec<Source>, Error> {
        let mut sources: Vec<Source> = self.list(self.api(), "Sources").await?;
        sources.sort_by_key(super::namespaced_name);
        Ok(sources)
    }

    /// Lists the Sources, and those of the platform, as far as the user may read them.
    pub async fn sources_with_platform(&self, platform: &str) -> Result<Vec<Source>, Error> {
        let mut sources = self.sources().await?;
        if self.namespace.is_some_and(|namespace| namespace != platform) {
            let of_platform: Api<Source> = Api::namespaced(self.client.clone(), platform);
            match self.list(of_platform, "Sources of the platform").await {
                Ok(more) => sources.extend(more),
                Err(Error::List { source, .. }) if is_forbidden(&source) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sources)
    }

    pub async fn syncs(&self) -> Result<Vec<SyncObject>, Error> {
        self.list(self.api(), "Syncs").await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    async fn list<K>(&self, api: Api<K>, objects: &str) -> Result<Vec<K>, Error>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let all = list_all(api, ListParams::default(), objects, self.progress).await;
        all.map_err(|error| Error::List { objects: objects.to_owned(), source: Box::new(error) })
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
