//! Builds a timeline from conditions and Events, without duplicates. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::reasons::{PlacementReason, ReleaseReason};
use chandler_view::fleet::{KINDS, Kind, ObjectName, Placement, Release, State};
use jiff::{Timestamp, fmt::temporal::DateTimePrinter};
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt as _;

use crate::output::{Color, Screen};

/// The placement or release of a timeline.
#[derive(Clone, Debug)]
pub struct Subject {
    placement: Option<ObjectName>,
    release: Option<ObjectName>,
    cluster: Option<String>,
}

/// An entry of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Timestamp,
    /// Name of the cluster, or of the placement.
    pub source: String,
    pub message: String,
    pub is_failure: bool,
}

/// Returns entries that have not been returned before.
#[derive(Debug)]
pub struct Timeline {
    subject: Subject,
    /// Clusters by kind and name of the release object, because Events contain only the object.
    clusters: BTreeMap<(String, String), String>,
    /// The last message of each object.
    messages: BTreeMap<ObjectName, String>,
    /// Names and counts of Events.
    events: BTreeSet<(String, i32)>,
}

impl Subject {
    pub fn of_placement(placement: &Placement, cluster: Option<String>) -> Self {
        Self { placement: Some(placement.object.clone()), release: None, cluster }
    }

    pub fn of_release(release: &Release) -> Self {
        Self { placement: None, release: Some(release.object.clone()), cluster: None }
    }

    /// Returns the kinds to watch. A placement and its releases have the same API group.
    pub fn kinds(&self) -> Vec<&'static Kind> {
        let names = self.placement.iter().chain(&self.release).map(|object| object.kind.as_str());
        let groups: BTreeSet<&str> = names
            .flat_map(|name| KINDS.iter().filter(move |kind| kind.name == name))
            .map(|kind| kind.group)
            .collect();
        KINDS.iter().filter(|kind| groups.contains(kind.group)).collect()
    }

    fn is_placement(&self, object: &ObjectName) -> bool {
        self.placement.as_ref() == Some(object) && self.cluster.is_none()
    }

    fn includes(&self, release: &Release) -> bool {
        let owned = self.placement.as_ref().is_some_and(|placement| {
            release.object.namespace == placement.namespace
                && release
                    .placement
                    .as_ref()
                    .is_some_and(|(kind, name)| (kind, name) == (&placement.kind, &placement.name))
        });
        self.release.as_ref() == Some(&release.object)
            || (owned && self.cluster.as_ref().is_none_or(|cluster| *cluster == release.cluster))
    }
}

impl Timeline {
    pub fn new(subject: Subject) -> Self {
        Self { subject, clusters: BTreeMap::new(), messages: BTreeMap::new(), events: BTreeSet::new() }
    }

    /// Returns an entry if the `Ready` condition of a release has changed.
    pub fn release(&mut self, release: &Release, now: Timestamp) -> Option<Entry> {
        if !self.subject.includes(release) {
            return None;
        }
        let object = &release.object;
        self.clusters.insert((object.kind.clone(), object.name.clone()), release.cluster.clone());
        let revision = release.status.revision.map(|revision| format!(" at revision {revision}"));
        let is_failure = matches!(release.state(), State::Failed | State::Unreachable)
            || release.reason() == Some(ReleaseReason::GetClusterFailed);
        self.condition(
            object,
            &release.cluster,
            release.ready()?,
            &revision.unwrap_or_default(),
            is_failure,
            now,
        )
    }

    /// Returns an entry if the `Ready` condition of a placement has changed.
    pub fn placement(&mut self, placement: &Placement, now: Timestamp) -> Option<Entry> {
        if !self.subject.is_placement(&placement.object) {
            return None;
        }
        let ready = placement.status.ready_clusters.as_ref().map(|ready| format!(" on {ready} clusters"));
        let name = &placement.object.name;
        let is_failure = placement.reason().is_some_and(PlacementReason::is_failure);
        self.condition(
            &placement.object,
            name,
            placement.ready()?,
            &ready.unwrap_or_default(),
            is_failure,
            now,
        )
    }

    fn condition(
        &mut self,
        object: &ObjectName,
        source: &str,
        ready: &Condition,
        ready_suffix: &str,
        is_failure: bool,
        now: Timestamp,
    ) -> Option<Entry> {
        let state =
            if ready.status == "True" { format!("Ready{ready_suffix}") } else { ready.reason.clone() };
        let message = if ready.message.is_empty() { state } else { format!("{state}: {}", ready.message) };
        let previous = self.messages.insert(object.clone(), message.clone());
        // The transition time changes only with the status, so changes of the message are dated when they are observed.
        let at = if previous.is_some() { now } else { ready.last_transition_time.0 };
        (previous.as_ref() != Some(&message)).then(|| Entry {
            at,
            source: source.to_owned(),
            message,
            is_failure,
        })
    }

    /// Returns an entry if an Event is new or has occurred again.
    pub fn event(&mut self, event: &Event) -> Option<Entry> {
        let regarding = event.regarding.as_ref()?;
        let object = ObjectName {
            kind: regarding.kind.clone().unwrap_or_default(),
            namespace: regarding.namespace.clone().unwrap_or_default(),
            name: regarding.name.clone().unwrap_or_default(),
        };
        let source = if self.subject.is_placement(&object) {
            object.name
        } else {
            self.clusters.get(&(object.kind, object.name))?.clone()
        };
        let count = event.series.as_ref().map_or(1, |series| series.count);
        if !self.events.insert((event.name_any(), count)) {
            return None;
        }
        let last = event.series.as_ref().map(|series| series.last_observed_time.0);
        let at = last.or(event.event_time.as_ref().map(|time| time.0));
        let at = at.or(event.deprecated_last_timestamp.as_ref().map(|time| time.0));
        let at = at.or(event.creation_timestamp().map(|time| time.0))?;
        let reason = event.reason.clone().unwrap_or_default();
        let note = event.note.as_deref().unwrap_or_default();
        let is_failure = event.type_.as_deref() == Some("Warning");
        Some(Entry { at, source, message: format!("Event {reason}: {note}"), is_failure })
    }
}

impl Entry {
    pub fn text(&self, screen: Screen) -> String {
        let at = DateTimePrinter::new().precision(Some(0)).timestamp_to_string(&self.at);
        let message = screen.paint(&self.message, self.is_failure.then_some(Color::Red));
        format!("{at}  {:<16} {message}", self.source)
    }
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{placement, ready, release};
    use serde_json::json;

    use super::*;

    fn event(name: &str, release: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "fleet"}, "eventTime": "2026-01-01T00:00:03.500000Z",
            "type": "Warning", "reason": "Conflict", "note": "it is taken",
            "regarding": {"kind": "HelmReleaseProxy", "namespace": "fleet", "name": release},
        }))
        .unwrap()
    }

    #[test]
    fn entries_are_returned_once_and_only_of_the_subject() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut timeline = Timeline::new(Subject::of_placement(&placement("hello", &["alpha"]), None));
        let pending = release("hello", "alpha", &ready("False", "HelmReleasePending", "installing"));
        assert_eq!(timeline.release(&release("other", "alpha", &ready("True", "Ready", "")), now), None);
        assert_eq!(timeline.event(&event("a", "other-alpha")), None);
        let first = timeline.release(&pending, now).unwrap();
        assert_eq!(
            first.text(Screen::plain(None)),
            "2026-01-01T00:00:00Z  alpha            HelmReleasePending: installing"
        );
        assert_eq!(timeline.release(&pending, now), None);
        let done = timeline.release(&release("hello", "alpha", &ready("True", "Ready", "")), now).unwrap();
        assert_eq!((done.at, &*done.message, done.is_failure), (now, "Ready at revision 2", false));
        let failure = timeline.event(&event("a", "hello-alpha")).unwrap();
        assert_eq!(
            failure.text(Screen::plain(None)),
            "2026-01-01T00:00:03Z  alpha            Event Conflict: it is taken"
        );
        assert_eq!(timeline.event(&event("a", "hello-alpha")), None);
    }

    #[test]
    fn entries_can_be_limited_to_a_cluster() {
        let now = Timestamp::UNIX_EPOCH;
        let subject = Subject::of_placement(&placement("hello", &["alpha"]), Some("bravo".to_owned()));
        let mut timeline = Timeline::new(subject);
        assert_eq!(timeline.placement(&placement("hello", &["alpha"]), now), None);
        assert_eq!(timeline.release(&release("hello", "alpha", &ready("True", "Ready", "")), now), None);
        assert!(timeline.release(&release("hello", "bravo", &ready("True", "Ready", "")), now).is_some());
    }

    #[test]
    fn the_kinds_of_one_group_are_watched() {
        let kinds = Subject::of_placement(&placement("hello", &[]), None).kinds();
        assert_eq!(
            kinds.iter().map(|kind| kind.name).collect::<Vec<_>>(),
            ["HelmChartProxy", "HelmReleaseProxy"]
        );
    }
}
