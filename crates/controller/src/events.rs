//! Publishes Events: one per change of state, none per retry.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::backoff::jittered;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{error::is_temporary, locks::Mutex};

/// Publishes Events.
#[derive(Clone)]
pub struct Events {
    /// `None` means that Events are discarded.
    client: Option<Client>,
    recorders: Arc<Mutex<Recorders>>,
    retried: Arc<Mutex<HashSet<EventKey>>>,
}

/// The UID of the object, the reason and the note.
type EventKey = (String, String, String);

/// An Event that is being retried. An equal one is not retried meanwhile.
struct Retry {
    retried: Arc<Mutex<HashSet<EventKey>>>,
    key: EventKey,
}

impl Retry {
    /// Returns `None` if an equal Event, or too many others, are being retried.
    fn begin(retried: Arc<Mutex<HashSet<EventKey>>>, key: EventKey) -> Option<Self> {
        let mut all = retried.lock();
        let begins = all.len() < MAX_RETRIED && all.insert(key.clone());
        drop(all);
        begins.then(|| Self { retried, key })
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.retried.lock().remove(&self.key);
    }
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
/// The delays after which an Event is published again, if the API server was not available.
const RETRY_DELAYS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_mins(1),
    Duration::from_mins(3),
];
/// The maximum number of Events that are retried at the same time. Further ones are lost.
const MAX_RETRIED: usize = 1_000;
/// The longest note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;

impl Events {
    pub fn new(client: Client) -> Self {
        Self { client: Some(client), recorders: Arc::default(), retried: Arc::default() }
    }

    /// Discards all Events, for commands that only read.
    pub fn discard() -> Self {
        Self { client: None, recorders: Arc::default(), retried: Arc::default() }
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
        self.publication(object.object_ref(&()), EventType::Warning, reason, note, &[]).await
    }

    /// Publishes in the background. A lost Event is acceptable, because the status has most of the information.
    fn publish(&self, object: &impl Resource<DynamicType = ()>, type_: EventType, reason: &str, note: &str) {
        tokio::spawn(self.publication(object.object_ref(&()), type_, reason, note, &RETRY_DELAYS));
    }

    /// Publishes an Event, and tries again after each of these delays. Returns whether that succeeded.
    fn publication(
        &self,
        regarding: ObjectReference,
        type_: EventType,
        reason: &str,
        note: &str,
        retry_delays: &'static [Duration],
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
        let retried = self.retried.clone();
        let key = (regarding.uid.clone().unwrap_or_default(), reason.to_owned(), note[..end].to_owned());
        async move {
            let Some(recorder) = recorder else { return true };
            let Err(mut error) = recorder.publish(&event, &regarding).await else { return true };
            let seed = key.0.clone();
            let is_retried = !retry_delays.is_empty() && is_temporary(&error);
            if let Some(_retry) = is_retried.then(|| Retry::begin(retried, key)).flatten() {
                for (delay, count) in retry_delays.iter().zip(1..) {
                    tokio::time::sleep(jittered(*delay, count, &seed)).await;
                    match recorder.publish(&event, &regarding).await {
                        Ok(()) => return true,
                        Err(failed) => error = failed,
                    }
                }
            }
            tracing::warn!(%error, reason = event.reason, "cannot publish an Event");
            false
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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response};
    use kube::{client::Body, core::Status};

    use super::*;

    /// Publishes an Event to an API server that refuses the first requests with this code. Returns whether it was published, and
    /// the number of requests.
    async fn publish(refused: usize, code: u16) -> (bool, usize) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let answer = move |request: Request<Body>| {
            let is_refused = counted.fetch_add(1, Ordering::Relaxed) < refused;
            async move {
                if !is_refused {
                    return Ok::<_, Infallible>(Response::new(request.into_body()));
                }
                let status = serde_json::to_vec(&Status::failure("why", "Why").with_code(code)).unwrap();
                Ok(Response::builder().status(code).body(Body::from(status)).unwrap())
            }
        };
        let events = Events::new(Client::new(tower::service_fn(answer), "default"));
        let object = ObjectReference { uid: Some("uid".to_owned()), ..ObjectReference::default() };
        let published =
            events.publication(object, EventType::Normal, "Upgraded", "to 2.0.0", &RETRY_DELAYS).await;
        (published, requests.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_retried_if_the_api_server_is_not_available() {
        assert_eq!(publish(0, 503).await, (true, 1));
        assert_eq!(publish(3, 503).await, (true, 4));
        assert_eq!(publish(100, 503).await, (false, 1 + RETRY_DELAYS.len()));
        assert_eq!(publish(100, 403).await, (false, 1), "a retry alone does not help");
    }

    fn key(note: &str) -> EventKey {
        ("uid".to_owned(), "Upgraded".to_owned(), note.to_owned())
    }

    #[test]
    fn few_events_are_retried_at_the_same_time_and_each_only_once() {
        let retried = Arc::<Mutex<HashSet<EventKey>>>::default();
        let begin = |note: &str| Retry::begin(retried.clone(), key(note));
        let first = begin("first").unwrap();
        assert!(begin("first").is_none(), "it is being retried");
        let others: Vec<_> = (1..MAX_RETRIED).filter_map(|number| begin(&number.to_string())).collect();
        assert_eq!(others.len(), MAX_RETRIED - 1);
        assert!(begin("another").is_none(), "too many are being retried");
        drop(first);
        assert!(begin("first").is_some());
    }
}
