//! Polls the Sources of other Syncs before something is deleted: each sees a commit at another time.

use std::collections::BTreeMap;

use chandler_api::extensions::SyncObject;
use chandler_core::{
    failure::Failure,
    sync::{Directory, SourceKey},
};
use chandler_source::SourceTree;
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{Gone, TREE_LIMIT, by_deadline};
use crate::{
    queue::outside_of_limit,
    sync::{SyncContext, run::CONCURRENT_REQUESTS},
};

/// How often what was found may lead to more Sources. What is left after that is unknown.
const MAX_ROUNDS: usize = 3;
/// Why the directories of a Source that cannot be polled are unknown.
const CANNOT_BE_POLLED: &str = "its Source is suspended, missing, or may not be used";

/// What polls of Sources have found: whether the newest revision is known.
#[derive(Debug, Default)]
pub struct Polled(BTreeMap<SourceKey, Result<bool, Failure>>);

impl Polled {
    pub(super) fn contains(&self, source: &SourceKey) -> bool {
        self.0.contains_key(source)
    }

    /// Returns why the newest revision of a Source is not known, or `None` if it is.
    pub(super) fn unknown(&self, source: &SourceKey) -> Option<String> {
        match self.0.get(source) {
            Some(Ok(true)) => None,
            Some(Ok(false)) => Some(CANNOT_BE_POLLED.to_owned()),
            Some(Err(failure)) => Some(failure.message.clone()),
            None => Some("its Source was not polled".to_owned()),
        }
    }

    /// Returns why a Source could not be polled.
    pub fn failure_of(&self, source: &SourceKey) -> Option<&Failure> {
        self.0.get(source)?.as_ref().err()
    }

    /// Returns the first failure of a poll. It is worth a retry.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.values().find_map(|polled| polled.as_ref().err())
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
        let (deadline, mut polled) = (Instant::now() + TREE_LIMIT, Polled::default());
        // What was found may contain Syncs of other Sources.
        for _ in 0..MAX_ROUNDS {
            let mut unpolled = self.wanted_by_others(sync, tree, gone, Some(&polled)).await?.unpolled;
            let (own, key) = (Directory::of(sync), Directory::of(sync).source_key(&self.platform));
            if tree.is_some() && !polled.contains(&key) {
                unpolled.insert(key, own);
            }
            if unpolled.is_empty() {
                break;
            }
            let polls = unpolled.into_iter().map(|(key, directory)| async move {
                let poll = self.trees.poll(&directory.source, &directory.namespace);
                (key, by_deadline(deadline, &directory, poll).await)
            });
            let polls = stream::iter(polls.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_REQUESTS);
            polled.0.extend(outside_of_limit(polls.collect::<Vec<_>>()).await);
        }
        Ok(polled)
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
