//! Publishes Events: one per change of state, none per retry.

use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

/// Publishes Events.
#[derive(Clone)]
pub struct Events(Recorder);

/// The longest note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;

impl Events {
    pub fn new(client: Client) -> Self {
        Self(Recorder::new(client, Reporter { controller: "chandler".into(), instance: None }))
    }

    /// Publishes an Event of type `Normal`.
    pub fn normal(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(object, EventType::Normal, reason, note);
    }

    /// Publishes an Event of type `Warning`.
    pub fn warning(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(object, EventType::Warning, reason, note);
    }

    /// Publishes in the background. A lost Event is acceptable, because the status has the same information.
    fn publish(&self, object: &impl Resource<DynamicType = ()>, type_: EventType, reason: &str, note: &str) {
        let end = (0..=note.len().min(MAX_NOTE)).rev().find(|&at| note.is_char_boundary(at)).unwrap_or(0);
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note[..end].to_owned()),
            action: reason.to_owned(),
            secondary: None,
        };
        let (recorder, regarding) = (self.0.clone(), object.object_ref(&()));
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &regarding).await {
                tracing::warn!(%error, reason = event.reason, "cannot publish an Event");
            }
        });
    }
}
