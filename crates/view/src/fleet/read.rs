//! Reads a fleet off the management cluster, page by page.

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};

use super::{
    kinds::{KINDS, Kind, Role},
    model::{Placement, Release},
};
use crate::Progress;

const PAGE: u32 = 500;

/// Why a fleet cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("listing {what}")]
pub struct Error {
    pub what: String,
    pub source: Box<kube::Error>,
}

/// Everything of a namespace, or of all.
#[derive(Debug, Default)]
pub struct Fleet {
    pub placements: Vec<Placement>,
    pub releases: Vec<Release>,
}

/// Lists objects, whatever their kind.
pub struct Reader {
    client: Client,
    namespace: Option<String>,
}

impl Reader {
    /// A namespace of `None` means all.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace }
    }

    /// Placements and releases of every kind that is served.
    pub async fn fleet(&self, progress: &dyn Progress) -> Result<Fleet, Error> {
        let mut fleet = Fleet::default();
        for kind in &KINDS {
            match kind.role {
                Role::Placement => fleet.placements.extend(self.list(kind, Placement::of, progress).await?),
                Role::Release => fleet.releases.extend(self.list(kind, Release::of, progress).await?),
            }
        }
        Ok(fleet)
    }

    /// The objects of a kind, each reduced to what is wanted of it before the next page is asked for.
    async fn list<T>(
        &self,
        kind: &Kind,
        of: impl Fn(&Kind, &DynamicObject) -> T,
        progress: &dyn Progress,
    ) -> Result<Vec<T>, Error> {
        let api = self.api(kind);
        let mut all = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = match api.list(&page).await {
                Ok(list) => list,
                // The kind is not served: there are none.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
                Err(error) => return Err(Error { what: kind.plural.to_owned(), source: Box::new(error) }),
            };
            all.extend(list.items.iter().map(|object| of(kind, object)));
            progress.report(format!("reading: {} {}", all.len(), kind.plural));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }
}
