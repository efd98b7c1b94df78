//! Reconciles a catalog: polls its source if it is due, and updates the status.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{CatalogStatus, ExtensionCatalog};
use chandler_core::{
    catalog::{LastPoll, PollResult, Selection, interval, poll_delay, report, unverifiable},
    conditions,
    digest::Digest,
    failure::{Category, Failure},
};
use chandler_source::{Access, CatalogRequest};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::controller::Action};

use super::{CatalogContext, access::catalog_access, ready};
use crate::{ReconcileError, queue::outside_of_limit, status};

/// The poll interval of a catalog whose `spec.interval` is invalid.
const DEFAULT_INTERVAL: Duration = Duration::from_hours(1);

pub(super) async fn reconcile(
    catalog: Arc<ExtensionCatalog>,
    context: Arc<CatalogContext>,
) -> Result<Action, ReconcileError> {
    let Some(uid) = catalog.uid().filter(|_| catalog.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let reconciler = Reconciler { catalog: &catalog, context: &context, uid };
    let wait = reconciler.wait(Timestamp::now());
    if !wait.is_zero() {
        return Ok(Action::requeue(wait));
    }
    let result = reconciler.poll().await;
    let now = Timestamp::now();
    reconciler.update_status(&result, now).await?;
    reconciler.record(&result, now);
    Ok(Action::requeue(reconciler.wait(now).max(Duration::from_secs(1))))
}

struct Reconciler<'a> {
    catalog: &'a ExtensionCatalog,
    context: &'a CatalogContext,
    uid: String,
}

impl Reconciler<'_> {
    /// Returns the time until the next poll. Zero means that it is due.
    fn wait(&self, now: Timestamp) -> Duration {
        let last = self.context.polls().get(&self.uid).copied();
        let last = last.or_else(|| self.poll_from_status());
        let every = interval(&self.catalog.spec.interval).unwrap_or(DEFAULT_INTERVAL);
        poll_delay(last.as_ref(), self.catalog.metadata.generation, every, &self.uid, now)
    }

    /// Returns the last successful poll according to the status, if its result is still stored. It may have been by
    /// another process.
    fn poll_from_status(&self) -> Option<LastPoll> {
        let status = self.catalog.status.as_ref()?;
        let is_ready = conditions::is_true(&status.conditions, "Ready");
        let at = status.read_at.as_ref().filter(|_| is_ready)?.0;
        let selection = Selection::new(self.catalog.spec.filter.as_ref()).ok()?;
        self.context.packages.stored_catalog(self.request(&Access::default(), &selection))?;
        Some(LastPoll { generation: status.observed_generation, at, failures: None })
    }

    async fn poll(&self) -> PollResult {
        if let Some(why) = unverifiable(&self.catalog.spec) {
            // Others need no notification: the change of the object that led to this was one.
            self.context.packages.remove_catalog(&self.uid);
            return PollResult::Unverifiable(why);
        }
        match self.read().await {
            Ok((packages, digest)) => PollResult::Read { packages, digest },
            Err(failure) => PollResult::Failed { kept: self.is_kept(), failure },
        }
    }

    async fn read(&self) -> Result<(u32, Digest), Failure> {
        interval(&self.catalog.spec.interval)?;
        let selection = Selection::new(self.catalog.spec.filter.as_ref())?;
        let namespace = self.catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.context.client, &namespace, &self.catalog.spec).await?;
        let request = self.request(&access, &selection);
        let before = self.context.packages.stored_catalog(request).map(|kept| kept.digest().to_owned());
        let read = outside_of_limit(self.context.packages.read_catalog(request)).await?;
        if before.as_deref() != Some(read.digest()) {
            self.context.changes.changed();
        }
        let digest = Digest::parse(read.digest())
            .ok_or_else(|| Failure::new(Category::Internal, "the stored catalog has no digest"))?;
        Ok((read.packages(), digest))
    }

    /// Returns whether the packages that the status describes are still offered.
    fn is_kept(&self) -> bool {
        let reported = self.catalog.status.as_ref().and_then(|status| status.digest.as_deref());
        let Ok(selection) = Selection::new(self.catalog.spec.filter.as_ref()) else { return false };
        let kept = self.context.packages.stored_catalog(self.request(&Access::default(), &selection));
        kept.is_some_and(|kept| Some(kept.digest()) == reported)
    }

    fn request<'a>(&'a self, access: &'a Access, selection: &'a Selection) -> CatalogRequest<'a> {
        CatalogRequest { key: &self.uid, url: &self.catalog.spec.url, access, selection }
    }

    fn record(&self, result: &PollResult, now: Timestamp) {
        let mut polls = self.context.polls();
        let generation = self.catalog.metadata.generation;
        let before = polls.get(&self.uid).filter(|last| last.generation == generation);
        let count = before.and_then(|last| last.failures).map_or(0, |(count, _)| count) + 1;
        let failures = match result {
            PollResult::Read { .. } => None,
            PollResult::Failed { failure, .. } => Some((count, failure.category)),
            PollResult::Unverifiable(_) => Some((count, Category::InvalidSpec)),
        };
        polls.insert(self.uid.clone(), LastPoll { generation, at: now, failures });
    }

    /// Writes the status if it has changed, and publishes an Event if the condition `Ready` has.
    async fn update_status(&self, result: &PollResult, now: Timestamp) -> Result<(), ReconcileError> {
        let old = self.catalog.status.clone().unwrap_or_default();
        let new = report(&old, result, self.catalog.metadata.generation, now);
        if new == old {
            return Ok(());
        }
        status::write(&self.context.client, self.catalog, &new).await?;
        let state = |status| ready(status).map(|ready| (ready.status.clone(), ready.reason.clone()));
        if state(&new) != state(&old) {
            self.publish(result, &new);
        }
        Ok(())
    }

    fn publish(&self, result: &PollResult, status: &CatalogStatus) {
        let Some(ready) = ready(status) else { return };
        let (namespace, name) = (self.catalog.namespace().unwrap_or_default(), self.catalog.name_any());
        if let PollResult::Read { packages, .. } = result {
            tracing::info!(namespace, name, packages, "catalog read");
            self.context.events.normal(self.catalog, &ready.reason, &format!("{packages} packages"));
        } else {
            tracing::warn!(namespace, name, reason = ready.reason, "catalog: {}", ready.message);
            self.context.events.warning(self.catalog, &ready.reason, &ready.message);
        }
    }
}
