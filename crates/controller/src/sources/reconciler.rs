//! Reconciles a Source: polls its repository if it is due, and updates the status.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::extensions::{RECONCILE_ANNOTATION, Source, SourceStatus};
use chandler_core::{
    failure::Failure,
    poll::{LastPoll, poll_delay},
    source::{
        Origin, PollCause, PollRequest, PollResult, RemoteRefs, interval_remark, max_refs_age, poll_interval,
        poll_seed, report, summary,
    },
    tenancy::SourceUse,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::controller::Action};

use super::{
    SourceContext, ready,
    requests::EndedPoll,
    revision::{FetchResult, RevisionFetcher},
};
use crate::{ReconcileError, status};

/// The poll interval of a Source whose `spec.interval` is invalid.
const DEFAULT_INTERVAL: Duration = Duration::from_mins(1);
/// The reason of the Event about another revision.
const NEW_REVISION: &str = "NewRevision";

pub(super) async fn reconcile(
    source: Arc<Source>,
    context: Arc<SourceContext>,
) -> Result<Action, ReconcileError> {
    let Some(uid) = source.uid().filter(|_| source.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let reconciler = Reconciler { source: &source, context: &context, uid };
    if source.spec.suspend {
        return reconciler.suspend().await;
    }
    let now = Timestamp::now();
    if let Some(request) = PollRequest::of_user(&source, now) {
        context.requests.add_if_none(&reconciler.uid, request);
    }
    let wait = reconciler.wait(now);
    if !wait.is_zero() {
        return Ok(Action::requeue(wait));
    }
    // A request that comes later causes another poll.
    let (request, began) = (context.requests.take(&reconciler.uid), Instant::now());
    let result = reconciler.poll(request).await;
    reconciler.end_request(request, began, &result);
    let now = Timestamp::now();
    reconciler.update_status(&result, now).await?;
    reconciler.record(&result, now);
    Ok(Action::requeue(reconciler.wait(now).max(Duration::from_secs(1))))
}

struct Reconciler<'a> {
    source: &'a Source,
    context: &'a SourceContext,
    uid: String,
}

impl Reconciler<'_> {
    /// Reports that the Source is suspended. It is polled as soon as it is resumed.
    async fn suspend(&self) -> Result<Action, ReconcileError> {
        self.context.polls().remove(&self.uid);
        let (request, began) = (self.context.requests.take(&self.uid), Instant::now());
        let result = PollResult::Suspended { kept: self.revision().stored().is_some() };
        self.end_request(request, began, &result);
        self.update_status(&result, Timestamp::now()).await?;
        Ok(Action::await_change())
    }

    /// Returns the time until the next poll. Zero means that it is due.
    fn wait(&self, now: Timestamp) -> Duration {
        let last = self.last_poll();
        let namespace = self.source.namespace().unwrap_or_default();
        let seed = poll_seed(&namespace, &self.source.spec);
        let generation = self.source.metadata.generation;
        let due = poll_delay(last.as_ref(), generation, self.interval(), &seed, now);
        let request = self.context.requests.get(&self.uid);
        request.map_or(due, |request| due.min(request.delay(last.as_ref(), now)))
    }

    fn interval(&self) -> Duration {
        poll_interval(&self.source.spec.interval, self.context.min_interval).unwrap_or(DEFAULT_INTERVAL)
    }

    fn last_poll(&self) -> Option<LastPoll> {
        self.context.polls().get(&self.uid).copied()
    }

    fn revision(&self) -> RevisionFetcher<'_> {
        RevisionFetcher {
            client: &self.context.client,
            packages: &self.context.packages,
            refused: &self.context.refused,
            source: self.source,
            uid: &self.uid,
        }
    }

    async fn poll(&self, request: Option<PollRequest>) -> PollResult {
        match self.current(request.is_some()).await {
            Ok(FetchResult { mut revision, is_new }) => {
                if is_new {
                    self.context.changed();
                }
                if let Some(next) = request.and_then(|request| request.next(is_new, Timestamp::now())) {
                    self.context.requests.add_if_none(&self.uid, next);
                }
                let spec = &self.source.spec.interval;
                if let Some(remark) = interval_remark(spec, self.context.min_interval) {
                    revision.remarks = [std::mem::take(&mut revision.remarks), remark]
                        .into_iter()
                        .filter(|remark| !remark.is_empty())
                        .collect::<Vec<_>>()
                        .join("; ");
                }
                PollResult::Fetched(revision)
            }
            Err(failure) => PollResult::Failed { failure, kept: self.is_kept() },
        }
    }

    async fn current(&self, is_requested: bool) -> Result<FetchResult, Failure> {
        poll_interval(&self.source.spec.interval, self.context.min_interval)?;
        let (url, namespace) = (Origin::of(&self.source.spec)?.url(), self.source.namespace());
        let namespace = namespace.unwrap_or_default();
        self.context.tenancies.check_source(&namespace, SourceUse::Url(&url)).await?;
        let generation = self.source.metadata.generation;
        let cause = if is_requested {
            PollCause::Request
        } else if self.last_poll().is_some_and(|last| last.generation == generation) {
            PollCause::Schedule
        } else {
            PollCause::Change
        };
        let max_age = max_refs_age(cause, self.interval());
        // Packages may name a tag instead of the revision of the Source.
        let on_refs = |refs: &RemoteRefs| {
            if self.context.tags.have_changed(&self.uid, refs) {
                self.context.changed();
            }
        };
        self.revision().current(max_age, on_refs).await
    }

    /// Returns whether the files of the revision in the status are still used.
    fn is_kept(&self) -> bool {
        let reported = self.source.status.as_ref().and_then(|status| status.revision.as_deref());
        self.revision().stored().is_some_and(|stored| Some(stored.commit.id.as_str()) == reported)
    }

    /// Tells those who wait for a requested poll that it has ended.
    fn end_request(&self, request: Option<PollRequest>, began: Instant, result: &PollResult) {
        if request.is_some() {
            let ended = EndedPoll { began, failure: result.failure() };
            self.context.ended_polls.record(&self.uid, ended);
        }
    }

    fn record(&self, result: &PollResult, now: Timestamp) {
        let failed = result.failure().map(|failure| failure.category);
        let mut polls = self.context.polls();
        let next = LastPoll::after(polls.get(&self.uid), self.source.metadata.generation, failed, now);
        polls.insert(self.uid.clone(), next);
    }

    /// Writes the status if it has changed, and publishes an Event if the revision or the condition `Ready` has.
    async fn update_status(&self, result: &PollResult, now: Timestamp) -> Result<(), ReconcileError> {
        let old = self.source.status.clone().unwrap_or_default();
        let new = SourceStatus {
            last_handled_reconcile_at: self.source.annotations().get(RECONCILE_ANNOTATION).cloned(),
            ..report(&old, result, self.source.metadata.generation, now)
        };
        if new == old {
            return Ok(());
        }
        status::write(&self.context.client, self.source, &new).await?;
        let state = |status| ready(status).map(|ready| (ready.status.clone(), ready.reason.clone()));
        if new.revision.is_some() && new.revision != old.revision {
            self.publish_revision(&new);
        } else if state(&new) != state(&old) {
            self.publish_state(&new);
        }
        Ok(())
    }

    fn publish_revision(&self, status: &SourceStatus) {
        let Some(commit) = &status.commit else { return };
        let (namespace, name) = (self.source.namespace().unwrap_or_default(), self.source.name_any());
        tracing::info!(namespace, name, revision = commit.id, "source has another revision");
        self.context.events.normal(self.source, NEW_REVISION, &summary(commit));
    }

    fn publish_state(&self, status: &SourceStatus) {
        let Some(ready) = ready(status) else { return };
        let (namespace, name) = (self.source.namespace().unwrap_or_default(), self.source.name_any());
        if ready.status == "True" {
            tracing::info!(namespace, name, reason = ready.reason, "source is ready");
            self.context.events.normal(self.source, &ready.reason, &ready.message);
        } else {
            tracing::warn!(namespace, name, reason = ready.reason, "source: {}", ready.message);
            self.context.events.warning(self.source, &ready.reason, &ready.message);
        }
    }
}
