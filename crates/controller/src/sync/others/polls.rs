//! Polls the Sources of other Syncs before something is deleted: each sees a commit at another time.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::SyncObject;
use chandler_core::{
    failure::{Category, Failure},
    sync::{Directory, SourceKey},
};
use chandler_source::SourceTree;
use futures::future::join_all;
use kube::{Api, api::ListParams};
use tokio::time::Instant;

use super::{Gone, TREE_LIMIT, by_deadline};
use crate::{queue::outside_of_limit, sync::SyncContext};

/// How often what was found may lead to more Sources. What is left after that is unknown.
const MAX_ROUNDS: usize = 3;

/// What polls of Sources have found: whether the newest revision is known.
#[derive(Debug, Default)]
pub struct Polled {
    sources: BTreeMap<SourceKey, Result<bool, Failure>>,
    /// The Syncs that the API server has listed: a watch may lag behind.
    pub(super) syncs: Option<Vec<Arc<SyncObject>>>,
}

impl Polled {
    pub(super) fn contains(&self, source: &SourceKey) -> bool {
        self.sources.contains_key(source)
    }

    /// Returns why the newest revision of a Source is not known, or `None` if it is.
    pub(super) fn unknown(&self, source: &SourceKey) -> Option<String> {
        let (namespace, name) = source;
        match self.sources.get(source) {
            Some(Ok(true)) => None,
            Some(Ok(false)) => {
                Some(format!("its Source {namespace}/{name} is suspended, missing, or may not be used"))
            }
            Some(Err(failure)) => Some(failure.message.clone()),
            None => Some(format!("its Source {namespace}/{name} was not polled")),
        }
    }

    /// Returns why a Source could not be polled.
    pub fn failure_of(&self, source: &SourceKey) -> Option<&Failure> {
        self.sources.get(source)?.as_ref().err()
    }

    /// Returns the first failure of a poll. It is worth a retry.
    pub fn failure(&self) -> Option<&Failure> {
        self.sources.values().find_map(|polled| polled.as_ref().err())
    }
}

impl SyncContext {
    /// Polls the Sources of the directories that may contain what `sync` would delete, and if it applies
    /// `tree`, its own: another commit may have come since.
    pub(in crate::sync) async fn poll_others(
        &self,
        sync: &SyncObject,
        tree: Option<&SourceTree>,
        gone: &[Gone<'_>],
    ) -> Result<Polled, Failure> {
        let (mut polled, mut rounds) = (Polled::default(), 0);
        loop {
            // Again each time: a poll may take long, and a Sync that was created meanwhile may want the objects.
            polled.syncs = Some(self.list_syncs().await?);
            // What was found may contain Syncs of other Sources.
            let mut unpolled = self.wanted_by_others(sync, tree, gone, Some(&polled)).await?.unpolled;
            let (own, key) = (Directory::of(sync), Directory::of(sync).source_key(&self.platform));
            if tree.is_some() && !polled.contains(&key) {
                unpolled.insert(key, own);
            }
            if unpolled.is_empty() || rounds == MAX_ROUNDS {
                return Ok(polled);
            }
            rounds += 1;
            let deadline = Instant::now() + TREE_LIMIT;
            let polls = unpolled.into_iter().map(|(key, directory)| async move {
                let poll = self.trees.poll(&directory.source, &directory.namespace);
                (key, by_deadline(deadline, &directory, poll).await)
            });
            // All at once: the controller of Sources limits how many are polled, and one that hangs must
            // not use up the time of the others.
            polled.sources.extend(outside_of_limit(join_all(polls)).await);
        }
    }

    /// Reads the Syncs that the manager watches.
    async fn list_syncs(&self) -> Result<Vec<Arc<SyncObject>>, Failure> {
        let api: Api<SyncObject> = match &self.scope.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let parameters = ListParams { label_selector: self.scope.labels.clone(), ..ListParams::default() };
        let listed = tokio::time::timeout(TREE_LIMIT, api.list(&parameters)).await;
        let failed =
            |message: String| Failure::new(Category::Unreachable, format!("cannot list Syncs: {message}"));
        let listed = listed.map_err(|_| failed(format!("no answer within {TREE_LIMIT:?}")))?;
        Ok(listed.map_err(|error| failed(error.to_string()))?.items.into_iter().map(Arc::new).collect())
    }

    /// Returns whether a directory may be at an older revision than `own`, or at an older one than the
    /// repository if the files of `own` were not read.
    pub(super) fn needs_poll(&self, directory: &Directory, own: &Directory, is_read: bool) -> bool {
        if directory.has_source_of(own, &self.platform) {
            return !is_read;
        }
        let repository = |one: &Directory| self.trees.repository(&one.source, &one.namespace);
        match (repository(own), repository(directory)) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        }
    }
}
