//! Publishes Events: one per change of state, none per retry.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::locks::Mutex;

/// Publishes Events.
#[derive(Clone)]
pub struct Events {
    /// `None` means that Events are discarded.
    client: Option<Client>,
    recorders: Arc<Mutex<Recorders>>,
}

/// The recorders by note. A recorder publishes the first note of an object and a reason, and only counts the others that
/// follow within minutes, also if their notes differ. With a recorder per note, each new problem is an Event of its own.
#[derive(Default)]
struct Recorders {
    by_note: HashMap<String, (Recorder, Instant)>,
    cleaned: Option<Instant>,
}

/// How long a recorder counts equal Events.
const COUNTING: Duration = Duration::from_mins(6);
const CLEANING: Duration = Duration::from_mins(1);
/// The longest note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;

impl Events {
    pub fn new(client: Client) -> Self {
        Self { client: Some(client), recorders: Arc::default() }
    }

    /// Discards all Events, for commands that only read.
    pub fn discard() -> Self {
        Self { client: None, recorders: Arc::default() }
    }

    /// Publishes an Event of type `Normal`.
    pub fn normal(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(object, EventType::Normal, reason, note);
    }

    /// Publishes an Event of type `Warning`.
    pub fn warning(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(object, EventType::Warning, reason, note);
    }

    /// Publishes an Event of type `Warning`, and returns whether that succeeded. For what no status is going to say.
    pub async fn warning_and_wait(
        &self,
        object: &impl Resource<DynamicType = ()>,
        reason: &str,
        note: &str,
    ) -> bool {
        self.publication(object.object_ref(&()), EventType::Warning, reason, note).await
    }

    /// Publishes in the background. A lost Event is acceptable, because the status has the same information.
    fn publish(&self, object: &impl Resource<DynamicType = ()>, type_: EventType, reason: &str, note: &str) {
        tokio::spawn(self.publication(object.object_ref(&()), type_, reason, note));
    }

    /// Publishes an Event. Returns whether that succeeded.
    fn publication(
        &self,
        regarding: ObjectReference,
        type_: EventType,
        reason: &str,
        note: &str,
    ) -> impl Future<Output = bool> + Send + use<> {
        let end = (0..=note.len().min(MAX_NOTE)).rev().find(|&at| note.is_char_boundary(at)).unwrap_or(0);
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note[..end].to_owned()),
            action: reason.to_owned(),
            secondary: None,
        };
        let recorder =
            self.client.as_ref().map(|client| self.recorders.lock().of(&note[..end], client, Instant::now()));
        async move {
            let Some(recorder) = recorder else { return true };
            let published = recorder.publish(&event, &regarding).await;
            if let Err(error) = &published {
                tracing::warn!(%error, reason = event.reason, "cannot publish an Event");
            }
            published.is_ok()
        }
    }
}

impl Recorders {
    /// Returns the recorder of a note.
    fn of(&mut self, note: &str, client: &Client, now: Instant) -> Recorder {
        if self.cleaned.is_none_or(|cleaned| now - cleaned > CLEANING) {
            self.by_note.retain(|_, (_, used)| now - *used < COUNTING);
            self.cleaned = Some(now);
        }
        let (recorder, used) = self.by_note.entry(note.to_owned()).or_insert_with(|| {
            let reporter = Reporter { controller: "chandler".into(), instance: None };
            (Recorder::new(client.clone(), reporter), now)
        });
        *used = now;
        recorder.clone()
    }
}
