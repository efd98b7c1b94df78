//! Reads a fleet off the management cluster, page by page.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};

use super::{
    kinds::{KINDS, Kind, Role},
    model::{Placement, Release},
};
use crate::progress::Progress;

const PAGE: u32 = 500;

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
    progress: Progress,
}

impl Reader {
    /// None: all namespaces.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, progress: Progress::start() }
    }

    /// Placements and releases of every kind that is served.
    pub async fn fleet(&mut self) -> Result<Fleet> {
        let mut fleet = Fleet::default();
        for kind in &KINDS {
            match kind.role {
                Role::Placement => fleet.placements.extend(self.list(kind, Placement::of).await?),
                Role::Release => fleet.releases.extend(self.list(kind, Release::of).await?),
            }
        }
        self.progress.end();
        Ok(fleet)
    }

    /// The objects of a kind, each reduced to what is wanted of it before the next page is asked for.
    pub async fn list<T>(&mut self, kind: &Kind, of: impl Fn(&Kind, &DynamicObject) -> T) -> Result<Vec<T>> {
        let api = self.api(kind);
        let mut all = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = match api.list(&page).await {
                Ok(list) => list,
                // The kind is not served: there are none.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
                Err(error) => return Err(error).with_context(|| format!("listing {}", kind.plural)),
            };
            all.extend(list.items.iter().map(|object| of(kind, object)));
            self.progress.tell(format!("reading: {} {}", all.len(), kind.plural));
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
