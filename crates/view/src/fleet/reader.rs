//! Reads the fleet from the management cluster.

use std::pin::pin;

use futures::TryStreamExt as _;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};

use super::{
    kinds::{KINDS, Kind, Model},
    model::{Placement, Release},
};
use crate::{Progress, paging::pages};

/// The objects of a kind cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("listing {plural}")]
pub struct Error {
    pub plural: String,
    pub source: Box<kube::Error>,
}

/// All placements and releases of a namespace, or of all namespaces.
#[derive(Debug, Default)]
pub struct Fleet {
    pub placements: Vec<Placement>,
    pub releases: Vec<Release>,
}

/// Lists placements and releases of all kinds.
pub struct FleetReader {
    client: Client,
    namespace: Option<String>,
}

impl FleetReader {
    /// `None` means all namespaces.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace }
    }

    /// Reads the placements and releases of every kind that the API server serves.
    pub async fn read(&self, progress: &dyn Progress) -> Result<Fleet, Error> {
        let mut fleet = Fleet::default();
        for kind in &KINDS {
            match kind.model {
                Model::Placement(_) => {
                    fleet.placements.extend(self.list(kind, Placement::from_object, progress).await?);
                }
                Model::Release => {
                    fleet.releases.extend(self.list(kind, Release::from_object, progress).await?);
                }
            }
        }
        Ok(fleet)
    }

    /// Lists the objects of a kind. Converts each page before it requests the next one, to save memory.
    async fn list<T>(
        &self,
        kind: &Kind,
        from_object: impl Fn(&Kind, &DynamicObject) -> T,
        progress: &dyn Progress,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut pages = pin!(pages(self.api(kind), ListParams::default()));
        loop {
            progress.report(format!("reading: {} {}", all.len(), kind.plural));
            match pages.try_next().await {
                Ok(Some(objects)) => all.extend(objects.iter().map(|object| from_object(kind, object))),
                Ok(None) => return Ok(all),
                // The API server does not serve the kind.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
                Err(error) => return Err(Error { plural: kind.plural.to_owned(), source: Box::new(error) }),
            }
        }
    }

    /// Returns the API of a kind, limited to the namespace of this reader.
    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }
}
