//! From states and Events to lines, each told once. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::reasons::{PlacementReason, ReleaseReason};
use chandler_view::fleet::{KINDS, Kind, ObjectName, Placement, Release, State};
use jiff::{Timestamp, fmt::temporal::DateTimePrinter};
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt as _;

use crate::output::{Colour, Screen};

/// Whose timeline it is.
#[derive(Clone, Debug)]
pub struct Subject {
    placement: Option<ObjectName>,
    release: Option<ObjectName>,
    cluster: Option<String>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at: Timestamp,
    /// The cluster, or the placement itself.
    pub who: String,
    pub what: String,
    pub bad: bool,
}

/// Remembers what has been told.
#[derive(Debug)]
pub struct Timeline {
    subject: Subject,
    /// Releases by kind and name, with their clusters: Events name only the object.
    clusters: BTreeMap<(String, String), String>,
    conditions: BTreeMap<ObjectName, String>,
    events: BTreeSet<(String, i32)>,
}

impl Subject {
    pub fn of_placement(placement: &Placement, cluster: Option<String>) -> Self {
        Self { placement: Some(placement.object.clone()), release: None, cluster }
    }

    pub fn of_release(release: &Release) -> Self {
        Self { placement: None, release: Some(release.object.clone()), cluster: None }
    }

    /// The kinds to watch: placements and their releases are of one group.
    pub fn kinds(&self) -> Vec<&'static Kind> {
        let named = self.placement.iter().chain(&self.release).map(|object| object.kind.as_str());
        let groups: BTreeSet<&str> = named
            .flat_map(|name| KINDS.iter().filter(move |kind| kind.name == name))
            .map(|kind| kind.group)
            .collect();
        KINDS.iter().filter(|kind| groups.contains(kind.group)).collect()
    }

    fn is_placement(&self, object: &ObjectName) -> bool {
        self.placement.as_ref() == Some(object) && self.cluster.is_none()
    }

    fn has(&self, release: &Release) -> bool {
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
        Self { subject, clusters: BTreeMap::new(), conditions: BTreeMap::new(), events: BTreeSet::new() }
    }

    /// What a release says, if it is news.
    pub fn release(&mut self, release: &Release, now: Timestamp) -> Option<Line> {
        if !self.subject.has(release) {
            return None;
        }
        let object = &release.object;
        self.clusters.insert((object.kind.clone(), object.name.clone()), release.cluster.clone());
        let revision = release.status.revision.map(|revision| format!(" at revision {revision}"));
        let bad = matches!(release.state(), State::Failed | State::Unreachable)
            || release.reason() == Some(ReleaseReason::GetClusterFailed);
        self.said(object, &release.cluster, release.ready()?, &revision.unwrap_or_default(), bad, now)
    }

    /// What a placement says, if it is news.
    pub fn placement(&mut self, placement: &Placement, now: Timestamp) -> Option<Line> {
        if !self.subject.is_placement(&placement.object) {
            return None;
        }
        let ready = placement.status.ready_clusters.as_ref().map(|ready| format!(" on {ready} clusters"));
        let name = &placement.object.name;
        let bad = placement.reason().is_some_and(PlacementReason::is_failure);
        self.said(&placement.object, name, placement.ready()?, &ready.unwrap_or_default(), bad, now)
    }

    fn said(
        &mut self,
        of: &ObjectName,
        who: &str,
        ready: &Condition,
        where_: &str,
        bad: bool,
        now: Timestamp,
    ) -> Option<Line> {
        let good = ready.status == "True";
        let state = if good { format!("Ready{where_}") } else { ready.reason.clone() };
        let what = if ready.message.is_empty() { state } else { format!("{state}: {}", ready.message) };
        let before = self.conditions.insert(of.clone(), what.clone());
        // A condition tells when its status changed; that its words changed is known only from having watched.
        let at = if before.is_some() { now } else { ready.last_transition_time.0 };
        (before.as_ref() != Some(&what)).then(|| Line { at, who: who.to_owned(), what, bad })
    }

    /// What an Event tells, if it is news.
    pub fn event(&mut self, event: &Event) -> Option<Line> {
        let about = event.regarding.as_ref()?;
        let object = ObjectName {
            kind: about.kind.clone().unwrap_or_default(),
            namespace: about.namespace.clone().unwrap_or_default(),
            name: about.name.clone().unwrap_or_default(),
        };
        let who = if self.subject.is_placement(&object) {
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
        let bad = event.type_.as_deref() == Some("Warning");
        Some(Line { at, who, what: format!("Event {reason}: {note}"), bad })
    }
}

impl Line {
    pub fn text(&self, screen: Screen) -> String {
        let at = DateTimePrinter::new().precision(Some(0)).timestamp_to_string(&self.at);
        let what = screen.paint(&self.what, self.bad.then_some(Colour::Red));
        format!("{at}  {:<16} {what}", self.who)
    }
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{placement, ready, release};
    use serde_json::json;

    use super::*;

    fn event(name: &str, about: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "fleet"}, "eventTime": "2026-01-01T00:00:03.500000Z",
            "type": "Warning", "reason": "Conflict", "note": "it is taken",
            "regarding": {"kind": "HelmReleaseProxy", "namespace": "fleet", "name": about},
        }))
        .unwrap()
    }

    #[test]
    fn everything_is_told_once_and_others_are_not() {
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
        assert_eq!((done.at, &*done.what, done.bad), (now, "Ready at revision 2", false));
        let told = timeline.event(&event("a", "hello-alpha")).unwrap();
        assert_eq!(
            told.text(Screen::plain(None)),
            "2026-01-01T00:00:03Z  alpha            Event Conflict: it is taken"
        );
        assert_eq!(timeline.event(&event("a", "hello-alpha")), None);
    }

    #[test]
    fn one_cluster_only() {
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
