//! Which releases on which clusters, and which Syncs, have a commit of a Source. Pure.

mod arrival;
mod order;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use chandler_api::extensions::{Source, SourceProgress, SourceRef, SyncObject};
use chandler_core::{conditions, extension::namespace_of, source::revision_digits};
use kube::ResourceExt as _;
use serde::Serialize;

pub use self::arrival::Arrival;
use self::order::{Order, Position};
use crate::{
    fleet::{Fleet, PackageFolder, Placement, Release, State},
    sources::namespaced_name,
};

/// Shortest start of a commit that is accepted.
const SHORTEST: usize = 4;
/// Length of a digest, which is longer than the id of a commit.
const LONGEST: usize = 64;

/// A commit cannot be found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "`{commit}` is not the id of a commit or the digest of an artifact: use its first 4 or more characters"
    )]
    Invalid { commit: String },
    #[error(
        "commit {commit} is unknown: no Source has it among its last ten revisions, and no release or Sync uses it; \
         `chandler source get` lists the revisions of Sources, `chandler source reconcile NAME` polls a repository now, \
         --all-namespaces searches all namespaces"
    )]
    Unknown { commit: String },
    #[error("commit {commit} is ambiguous: {}", candidates.join(", "))]
    Ambiguous { commit: String, candidates: Vec<String> },
}

/// The objects that a commit is searched in.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    pub fleet: &'a Fleet,
    pub sources: &'a [Source],
    pub syncs: &'a [SyncObject],
    /// The namespace of Sources with `scope: Platform`.
    pub platform: &'a str,
}

/// Where a commit is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitReport {
    /// The id of the commit, or the digest of the artifact.
    pub commit: String,
    /// First line of its message, if a Source still has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Namespaces and names of the Sources that have or had it.
    pub sources: Vec<String>,
    pub summary: Summary,
    pub places: Vec<Place>,
}

/// Counts the places of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub places: usize,
    /// Places that have the commit: `Current`, `Unchanged` or `Later`.
    pub arrived: usize,
    pub arrivals: BTreeMap<&'static str, usize>,
}

/// A release or a Sync that uses a Source of the commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    pub namespace: String,
    /// Name of the Cluster. `None` means the management cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Kind of the placement, or `Sync`.
    pub kind: String,
    pub name: String,
    /// Namespace and name of the Source.
    pub source: String,
    pub folder: String,
    pub arrival: Arrival,
    /// The revision at which the package was made, or that was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// State of the release. `None` for a Sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl CommitReport {
    /// Finds a commit by its id, or by the start of it.
    pub fn new(objects: Objects<'_>, text: &str) -> Result<Self, Error> {
        let used = used_revisions(objects);
        let commit = resolve(objects.sources, &used, text)?;
        let (mut sources, mut places) = (BTreeSet::new(), Vec::new());
        let names = objects.sources.iter().map(namespaced_name).chain(used.keys().cloned());
        for name in names.collect::<BTreeSet<_>>() {
            let source = objects.sources.iter().find(|source| namespaced_name(source) == name);
            let used = used.get(&name).map(Vec::as_slice).unwrap_or_default();
            let order = Order::new(source, used, &commit);
            if order.is_known() {
                places.extend(places_of_source(objects, &name, &order));
                sources.insert(name);
            }
        }
        places.sort_by(|a, b| {
            (&a.namespace, &a.cluster, &a.name, &a.kind).cmp(&(&b.namespace, &b.cluster, &b.name, &b.kind))
        });
        Ok(Self {
            subject: subject(objects.sources, &commit),
            commit,
            sources: sources.into_iter().collect(),
            summary: Summary::new(&places),
            places,
        })
    }
}

/// The revisions that releases and Syncs use, by the name of the Source. Those of tags are marked with `false`, because the
/// Source itself may never have had them.
type Used = BTreeMap<String, Vec<(String, bool)>>;

fn used_revisions(objects: Objects<'_>) -> Used {
    let mut used = Used::new();
    for release in &objects.fleet.releases {
        if let Some(folder) = &release.folder {
            let name = source_name(objects, &folder.source, &release.object.namespace);
            used.entry(name).or_default().push((folder.revision.clone(), folder.tag.is_none()));
        }
    }
    for sync in objects.syncs {
        let namespace = sync.namespace().unwrap_or_default();
        let applied = sync.status.as_ref().and_then(|status| status.last_applied.as_ref());
        if let Some(applied) = applied {
            let name = source_name(objects, &applied.source_ref, &namespace);
            used.entry(name).or_default().push((applied.revision.clone(), true));
        }
    }
    used
}

/// Returns namespace and name of the Source that an object of `namespace` refers to.
fn source_name(objects: Objects<'_>, reference: &SourceRef, namespace: &str) -> String {
    format!("{}/{}", namespace_of(reference.scope, namespace, objects.platform), reference.name)
}

/// Returns the only revision that starts with `text`, with or without the algorithm of a digest.
fn resolve(sources: &[Source], used: &Used, text: &str) -> Result<String, Error> {
    let lowercase = text.to_lowercase();
    let start = revision_digits(&lowercase);
    let is_id = start.chars().all(|digit| digit.is_ascii_hexdigit());
    if !is_id || !(SHORTEST..=LONGEST).contains(&start.len()) {
        return Err(Error::Invalid { commit: text.to_owned() });
    }
    let fetched = sources
        .iter()
        .flat_map(|source| &source.status)
        .flat_map(|status| status.history.iter().map(|revision| &revision.revision).chain(&status.revision));
    let used = used.values().flatten().map(|(revision, _)| revision);
    let candidates: BTreeSet<_> =
        fetched.chain(used).filter(|one| revision_digits(one).starts_with(start)).cloned().collect();
    let mut candidates: Vec<_> = candidates.into_iter().collect();
    match candidates.len() {
        0 => Err(Error::Unknown { commit: text.to_owned() }),
        1 => Ok(candidates.remove(0)),
        _ => Err(Error::Ambiguous { commit: text.to_owned(), candidates }),
    }
}

fn subject(sources: &[Source], commit: &str) -> Option<String> {
    let revisions = sources.iter().flat_map(|source| &source.status).flat_map(|status| &status.history);
    let mut found = revisions.filter(|revision| revision.revision == commit);
    found.find(|revision| !revision.subject.is_empty()).map(|revision| revision.subject.clone())
}

fn places_of_source(objects: Objects<'_>, source: &str, order: &Order<'_>) -> Vec<Place> {
    let mut places = Vec::new();
    for release in &objects.fleet.releases {
        let Some(folder) = &release.folder else { continue };
        if source_name(objects, &folder.source, &release.object.namespace) == source {
            places.extend(release_place(objects.fleet, release, folder, source, order));
        }
    }
    if !order.is_followed() {
        return places;
    }
    for placement in &objects.fleet.placements {
        for progress in &placement.sources {
            if source_name(objects, &progress.source_ref, &placement.object.namespace) == source {
                places.extend(missing_places(objects.fleet, placement, progress, source, order));
            }
        }
    }
    for sync in objects.syncs {
        let namespace = sync.namespace().unwrap_or_default();
        if source_name(objects, &sync.spec.source.source_ref, &namespace) == source {
            places.push(sync_place(sync, source, order));
        }
    }
    places
}

/// Returns the place of a release. `None` if it uses a tag of another commit.
fn release_place(
    fleet: &Fleet,
    release: &Release,
    folder: &PackageFolder,
    source: &str,
    order: &Order<'_>,
) -> Option<Place> {
    let position = order.position(&folder.revision);
    if position != Position::Same && (folder.tag.is_some() || !order.is_followed()) {
        return None;
    }
    let placement = release.placement.as_ref().and_then(|(kind, name)| {
        fleet.placements.iter().find(|placement| {
            let object = &placement.object;
            (&object.kind, &object.name, &object.namespace) == (kind, name, &release.object.namespace)
        })
    });
    let (state, kind) = (release.state(), release.placement.as_ref().map(|(kind, _)| kind));
    let arrival = match position {
        Position::Same => Arrival::of_state(state, Arrival::Current),
        Position::Later => Arrival::of_state(state, Arrival::Later),
        Position::Earlier => {
            match placement.map(|one| arrival::of_cluster(one, folder, &release.cluster, order)) {
                Some(Arrival::Unchanged) => Arrival::of_state(state, Arrival::Unchanged),
                Some(other) => other,
                None => Arrival::Pending,
            }
        }
        Position::Unknown => Arrival::Unknown,
    };
    let problem = match (state, arrival) {
        (State::Ready, Arrival::Failed) => placement.and_then(Placement::ready),
        (State::Ready, _) => None,
        _ => release.ready(),
    };
    Some(Place {
        namespace: release.object.namespace.clone(),
        cluster: Some(release.cluster.clone()),
        kind: kind.unwrap_or(&release.object.kind).clone(),
        name: release.add_on().to_owned(),
        source: source.to_owned(),
        folder: folder.path.clone(),
        arrival,
        revision: Some(folder.revision.clone()),
        state: Some(state),
        message: problem.map(|ready| ready.message.clone()).unwrap_or_default(),
    })
}

/// Returns the places of clusters for which no package could be made, so that they have no release.
fn missing_places(
    fleet: &Fleet,
    placement: &Placement,
    progress: &SourceProgress,
    source: &str,
    order: &Order<'_>,
) -> Vec<Place> {
    let object = &placement.object;
    let is_reached = progress.revision.as_deref().is_some_and(|revision| order.is_reached(revision));
    let has_release = |cluster: &str| {
        fleet.releases.iter().any(|release| {
            let owner = release.placement.as_ref();
            release.cluster == cluster
                && release.object.namespace == object.namespace
                && owner.is_some_and(|(kind, name)| (kind, name) == (&object.kind, &object.name))
        })
    };
    let missing = progress.behind_clusters.iter().filter(|cluster| is_reached && !has_release(cluster));
    let place = |cluster: &String| Place {
        namespace: object.namespace.clone(),
        cluster: Some(cluster.clone()),
        kind: object.kind.clone(),
        name: object.name.clone(),
        source: source.to_owned(),
        folder: String::new(),
        arrival: arrival::of_behind(placement),
        revision: None,
        state: Some(State::Missing),
        message: placement.ready().map(|ready| ready.message.clone()).unwrap_or_default(),
    };
    missing.map(place).collect()
}

fn sync_place(sync: &SyncObject, source: &str, order: &Order<'_>) -> Place {
    let status = sync.status.clone().unwrap_or_default();
    let ready = conditions::find(&status.conditions, "Ready").filter(|ready| ready.status != "True");
    let applied = status.last_applied.as_ref().filter(|last| last.source_ref == sync.spec.source.source_ref);
    let revision = applied.map(|applied| applied.revision.clone());
    let has_failed = status.revision.as_deref().is_some_and(|read| order.is_reached(read))
        && ready.is_some_and(|ready| ready.status == "False");
    let arrival = match revision.as_deref().map(|revision| order.position(revision)) {
        Some(Position::Same) => Arrival::Current,
        Some(Position::Later) => Arrival::Later,
        Some(Position::Unknown) => Arrival::Unknown,
        Some(Position::Earlier) | None if has_failed => Arrival::Failed,
        Some(Position::Earlier) | None => Arrival::Pending,
    };
    Place {
        namespace: sync.namespace().unwrap_or_default(),
        cluster: None,
        kind: "Sync".to_owned(),
        name: sync.name_any(),
        source: source.to_owned(),
        folder: sync.spec.source.path.clone(),
        arrival,
        revision,
        state: None,
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
    }
}

impl Summary {
    fn new(places: &[Place]) -> Self {
        let mut arrivals = BTreeMap::new();
        for place in places {
            *arrivals.entry(place.arrival.as_str()).or_default() += 1;
        }
        let arrived = places.iter().filter(|place| place.arrival.has_arrived()).count();
        Self { places: places.len(), arrived, arrivals }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Arrival::ALL.iter().filter_map(|arrival| {
            let count = self.arrivals.get(arrival.as_str())?;
            Some(format!("{count} {}", arrival.as_str().to_lowercase()))
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        write!(f, "arrived at {} of {} places: {counts}", self.arrived, self.places)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{folder_fleet, folder_release, source};

    const OLD: &str = "aaaa1111";
    const MIDDLE: &str = "bbbb2222";
    const NEW: &str = "bbbb3333";

    fn report(fleet: &Fleet, history: &[&str], text: &str) -> Result<CommitReport, Error> {
        let sources = [source("apps", history)];
        CommitReport::new(Objects { fleet, sources: &sources, syncs: &[], platform: "platform" }, text)
    }

    fn arrivals(fleet: &Fleet, commit: &str) -> Vec<String> {
        let report = report(fleet, &[NEW, MIDDLE, OLD], commit).unwrap();
        let text =
            |place: &Place| format!("{} {}", place.cluster.as_deref().unwrap_or("-"), place.arrival.as_str());
        report.places.iter().map(text).collect()
    }

    #[test]
    fn a_commit_that_does_not_change_a_package_has_arrived() {
        let fleet = folder_fleet(&[("alpha", NEW, "True"), ("bravo", OLD, "True")], NEW, &[]);
        assert_eq!(arrivals(&fleet, NEW), ["alpha Current", "bravo Unchanged"]);
        assert_eq!(arrivals(&fleet, MIDDLE), ["alpha Later", "bravo Unchanged"]);
        assert_eq!(arrivals(&fleet, OLD), ["alpha Later", "bravo Current"]);
        // The last revision that packages were made of is older than the commit.
        let fleet = folder_fleet(&[("alpha", OLD, "True")], MIDDLE, &[]);
        assert_eq!(arrivals(&fleet, NEW), ["alpha Pending"]);
    }

    #[test]
    fn a_bad_commit_has_failed_where_its_package_could_not_be_made_or_applied() {
        let releases = [("alpha", OLD, "True"), ("bravo", NEW, "False"), ("delta", NEW, "True")];
        let fleet = folder_fleet(&releases, NEW, &["alpha", "echo"]);
        assert_eq!(arrivals(&fleet, NEW), ["alpha Failed", "bravo Failed", "delta Current", "echo Failed"]);
        let report = report(&fleet, &[NEW, OLD], NEW).unwrap();
        let messages: Vec<_> = report.places.iter().map(|place| place.message.as_str()).collect();
        assert_eq!(messages, ["the folder is missing", "a.yaml, line 3: bad", "", "the folder is missing"]);
        assert_eq!(report.summary.to_string(), "arrived at 1 of 4 places: 1 current, 3 failed");
        assert_eq!(report.sources, ["fleet/apps"]);
    }

    #[test]
    fn the_start_of_a_commit_is_enough_if_it_is_the_only_one() {
        let fleet = folder_fleet(&[("alpha", OLD, "True")], NEW, &[]);
        let found = |text: &str| report(&fleet, &[NEW, MIDDLE], text).map(|report| report.commit);
        assert_eq!(found("AAAA").as_deref(), Ok(OLD), "a release uses it");
        assert_eq!(found("bbbb3").as_deref(), Ok(NEW));
        let candidates = vec![MIDDLE.to_owned(), NEW.to_owned()];
        assert_eq!(found("bbbb"), Err(Error::Ambiguous { commit: "bbbb".to_owned(), candidates }));
        assert_eq!(found("cccc"), Err(Error::Unknown { commit: "cccc".to_owned() }));
        for invalid in ["abc", "main", ""] {
            assert_eq!(found(invalid), Err(Error::Invalid { commit: invalid.to_owned() }));
        }
        let artifact = format!("sha256:{}", "d".repeat(64));
        for text in ["dddd", "sha256:dddd", artifact.as_str()] {
            let report = report(&fleet, &[artifact.as_str()], text).unwrap();
            assert_eq!(report.commit, artifact, "{text}");
        }
    }

    #[test]
    fn releases_of_tags_are_shown_only_for_their_own_commit() {
        let mut tagged = folder_release("alpha", OLD, "True");
        tagged.folder.as_mut().unwrap().tag = Some("v1.34".to_owned());
        let fleet = Fleet { placements: Vec::new(), releases: vec![tagged] };
        let places = |commit: &str| report(&fleet, &[NEW], commit).unwrap().places;
        assert_eq!(places(OLD)[0].arrival, Arrival::Current);
        assert_eq!(places(NEW), []);
    }

    #[test]
    fn a_sync_has_the_revision_that_it_applied_completely() {
        let sync = |applied: &str, read: &str, ready: &str| -> SyncObject {
            serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
                "metadata": {"name": "base", "namespace": "fleet"},
                "spec": {"source": {"sourceRef": {"name": "apps"}}, "serviceAccountName": "a"},
                "status": {
                    "revision": read,
                    "lastApplied": {
                        "revision": applied, "digest": "", "sourceRef": {"name": "apps"},
                        "at": "2026-01-01T00:00:00Z",
                    },
                    "conditions": [{
                        "type": "Ready", "status": ready, "reason": "", "message": "a.yaml:3: bad",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                },
            }))
            .unwrap()
        };
        let rows = [
            (sync(NEW, NEW, "True"), NEW, Arrival::Current),
            (sync(NEW, NEW, "True"), OLD, Arrival::Later),
            (sync(OLD, NEW, "False"), NEW, Arrival::Failed),
            (sync(OLD, OLD, "True"), NEW, Arrival::Pending),
        ];
        for (sync, commit, expected) in rows {
            let (fleet, sources) = (Fleet::default(), [source("apps", &[NEW, OLD])]);
            let objects = Objects {
                fleet: &fleet,
                sources: &sources,
                syncs: std::slice::from_ref(&sync),
                platform: "platform",
            };
            let report = CommitReport::new(objects, commit).unwrap();
            assert_eq!((report.places.len(), report.places[0].arrival), (1, expected));
        }
    }
}
