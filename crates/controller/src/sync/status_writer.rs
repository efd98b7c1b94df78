//! Writes the status of a Sync, and remembers what was written: the watch may lag behind, and an inventory must not be
//! forgotten.

use std::collections::HashMap;

use chandler_api::extensions::{SyncObject, SyncStatus};
use chandler_core::{
    conditions,
    sync::{Outcome, report, report_kept},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::SyncContext;
use crate::{ReconcileError, locks::Mutex, status};

/// The last written status of each Sync, by uid.
#[derive(Debug, Default)]
pub struct WrittenStatuses(Mutex<HashMap<String, SyncStatus>>);

impl WrittenStatuses {
    /// Returns the Sync with its newest status.
    pub fn newest(&self, sync: &SyncObject) -> SyncObject {
        let written = self.0.lock().get(&sync.uid().unwrap_or_default()).cloned();
        SyncObject { status: written.or_else(|| sync.status.clone()), ..sync.clone() }
    }

    /// Reads the newest status of a Sync.
    pub fn read<T>(&self, sync: &SyncObject, read: impl FnOnce(&SyncStatus) -> T) -> T {
        let written = self.0.lock();
        let known = written.get(&sync.uid().unwrap_or_default()).or(sync.status.as_ref());
        read(known.unwrap_or(&SyncStatus::default()))
    }

    pub fn forget(&self, sync: &SyncObject) {
        self.0.lock().remove(&sync.uid().unwrap_or_default());
    }
}

/// Writes the status of one Sync.
pub struct StatusWriter<'a> {
    context: &'a SyncContext,
    sync: &'a SyncObject,
    current: SyncStatus,
}

impl<'a> StatusWriter<'a> {
    pub fn new(context: &'a SyncContext, sync: &'a SyncObject) -> Self {
        Self { context, sync, current: sync.status.clone().unwrap_or_default() }
    }

    /// Returns the status that was written last.
    pub fn current(&self) -> &SyncStatus {
        &self.current
    }

    /// Writes the status if it has changed. Publishes an Event if `Ready` or `PruneHeld` has.
    pub async fn write(&mut self, revision: Option<&str>, outcome: &Outcome) -> Result<(), ReconcileError> {
        let mut new = report(self.sync, &self.current, revision, outcome, Timestamp::now());
        report_kept(&mut new, &self.context.kept_for(self.sync));
        if new == self.current {
            return Ok(());
        }
        status::write(&self.context.client, self.sync, &new).await?;
        let uid = self.sync.uid().unwrap_or_default();
        self.context.written.0.lock().insert(uid, new.clone());
        let old = std::mem::replace(&mut self.current, new);
        if !matches!(outcome, Outcome::Recorded { .. }) {
            self.publish(&old);
        }
        Ok(())
    }

    fn publish(&self, old: &SyncStatus) {
        let (namespace, name) = (self.sync.namespace().unwrap_or_default(), self.sync.name_any());
        for (type_, good) in [("Ready", "True"), ("PruneHeld", "False")] {
            let Some(new) = conditions::find(&self.current.conditions, type_) else { continue };
            let before = conditions::find(&old.conditions, type_);
            let same = before.is_some_and(|old| (&old.status, &old.reason) == (&new.status, &new.reason));
            if same || before.is_none() && type_ == "PruneHeld" && new.status == good {
                continue;
            }
            if new.status == good {
                tracing::info!(namespace, name, reason = new.reason, "Sync: {type_} is {}", new.status);
                self.context.events.normal(self.sync, &new.reason, &self.note(&new.message));
            } else {
                tracing::warn!(namespace, name, reason = new.reason, "Sync: {}", new.message);
                self.context.events.warning(self.sync, &new.reason, &self.note(&new.message));
            }
        }
    }

    fn note(&self, message: &str) -> String {
        match &self.current.revision {
            Some(revision) if message.is_empty() => format!("revision {revision}"),
            Some(revision) => format!("revision {revision}: {message}"),
            None => message.to_owned(),
        }
    }
}
