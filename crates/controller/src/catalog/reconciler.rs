//! One pass over a catalog: is it due, what does its source offer, what is to be told.

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
use crate::{ReconcileError, status};

/// The pace of a catalog whose interval cannot be read.
const HOURLY: Duration = Duration::from_hours(1);

pub(super) async fn reconcile(
    catalog: Arc<ExtensionCatalog>,
    context: Arc<CatalogContext>,
) -> Result<Action, ReconcileError> {
    let Some(uid) = catalog.uid().filter(|_| catalog.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let pass = Reconciler { catalog: &catalog, context: &context, uid };
    let wait = pass.wait(Timestamp::now());
    if !wait.is_zero() {
        return Ok(Action::requeue(wait));
    }
    let look = pass.look().await;
    let now = Timestamp::now();
    pass.tell(&look, now).await?;
    pass.note(&look, now);
    Ok(Action::requeue(pass.wait(now).max(Duration::from_secs(1))))
}

struct Reconciler<'a> {
    catalog: &'a ExtensionCatalog,
    context: &'a CatalogContext,
    uid: String,
}

impl Reconciler<'_> {
    /// How long until it is due; zero: it is.
    fn wait(&self, now: Timestamp) -> Duration {
        let last = self.context.looks().get(&self.uid).copied();
        let last = last.or_else(|| self.before_this_process());
        let every = interval(&self.catalog.spec).unwrap_or(HOURLY);
        poll_delay(last.as_ref(), self.catalog.metadata.generation, every, &self.uid, now)
    }

    /// A good look that the status tells of counts, if what was read is still there.
    fn before_this_process(&self) -> Option<LastPoll> {
        let status = self.catalog.status.as_ref()?;
        let is_good = conditions::is_true(&status.conditions, "Ready");
        let at = status.read_at.as_ref().filter(|_| is_good)?.0;
        let selection = Selection::new(self.catalog.spec.filter.as_ref()).ok()?;
        self.context.packages.stored_catalog(self.request(&Access::default(), &selection))?;
        Some(LastPoll { generation: status.observed_generation, at, failures: None })
    }

    async fn look(&self) -> PollResult {
        if let Some(why) = unverifiable(&self.catalog.spec) {
            // The object has changed for this, which was told already.
            self.context.packages.remove_catalog(&self.uid);
            return Look::Unverifiable(why);
        }
        match self.read().await {
            Ok((packages, digest)) => PollResult::Read { packages, digest },
            Err(failure) => PollResult::Failed { kept: self.is_kept(), failure },
        }
    }

    async fn read(&self) -> Result<(u32, Digest), Failure> {
        interval(&self.catalog.spec)?;
        let selection = Selection::new(self.catalog.spec.filter.as_ref())?;
        let namespace = self.catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.context.client, &namespace, &self.catalog.spec).await?;
        let request = self.request(&access, &selection);
        let before = self.context.packages.stored_catalog(request).map(|kept| kept.digest().to_owned());
        let read = self.context.packages.read_catalog(request).await?;
        if before.as_deref() != Some(read.digest()) {
            self.context.news.changed();
        }
        let digest = Digest::parse(read.digest())
            .ok_or_else(|| Failure::new(Category::Internal, "the kept catalog has no digest"))?;
        Ok((read.packages(), digest))
    }

    /// Whether what the status tells of is still offered.
    fn is_kept(&self) -> bool {
        let told = self.catalog.status.as_ref().and_then(|status| status.digest.as_deref());
        let Ok(selection) = Selection::new(self.catalog.spec.filter.as_ref()) else { return false };
        let kept = self.context.packages.stored_catalog(self.request(&Access::default(), &selection));
        kept.is_some_and(|kept| Some(kept.digest()) == told)
    }

    fn request<'a>(&'a self, access: &'a Access, selection: &'a Selection) -> CatalogRequest<'a> {
        CatalogRequest { key: &self.uid, url: &self.catalog.spec.url, access, selection }
    }

    fn note(&self, look: &PollResult, now: Timestamp) {
        let mut looks = self.context.looks();
        let generation = self.catalog.metadata.generation;
        let before = looks.get(&self.uid).filter(|last| last.generation == generation);
        let count = before.and_then(|last| last.failures).map_or(0, |(count, _)| count) + 1;
        let failures = match look {
            PollResult::Read { .. } => None,
            PollResult::Failed { failure, .. } => Some((count, failure.category)),
            PollResult::Unverifiable(_) => Some((count, Category::InvalidSpec)),
        };
        looks.insert(self.uid.clone(), LastPoll { generation, at: now, failures });
    }

    /// Writes the status if it says anything new, and an Event if the state is another.
    async fn tell(&self, look: &PollResult, now: Timestamp) -> Result<(), ReconcileError> {
        let old = self.catalog.status.clone().unwrap_or_default();
        let new = report(&old, look, self.catalog.metadata.generation, now);
        if new == old {
            return Ok(());
        }
        status::write(&self.context.client, self.catalog, &new).await?;
        let state = |status| ready(status).map(|ready| (ready.status.clone(), ready.reason.clone()));
        if state(&new) != state(&old) {
            self.publish(look, &new);
        }
        Ok(())
    }

    fn publish(&self, look: &PollResult, status: &CatalogStatus) {
        let Some(ready) = ready(status) else { return };
        let (namespace, name) = (self.catalog.namespace().unwrap_or_default(), self.catalog.name_any());
        if let PollResult::Read { packages, .. } = look {
            tracing::info!(namespace, name, packages, "catalog is read");
            self.context.events.normal(self.catalog, &ready.reason, &format!("{packages} packages"));
        } else {
            tracing::warn!(namespace, name, reason = ready.reason, "catalog: {}", ready.message);
            self.context.events.warning(self.catalog, &ready.reason, &ready.message);
        }
    }
}
