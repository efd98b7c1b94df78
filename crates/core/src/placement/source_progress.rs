//! Which clusters of an ExtensionInstance have which revisions of Sources.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{AddonRelease, RevisionCount, SourceProgress, SourceRef};

use crate::{
    identity::{ClusterKey, ClusterMap},
    release::ReleaseKind as _,
    source::short_revision,
};

/// How many clusters and revisions a status lists.
const MAX_LISTED: usize = 100;

/// The packages that were made for the clusters of an instance since the start of the manager.
#[derive(Clone, Debug, Default)]
pub struct SourceChecks {
    /// The last revision of each Source that a package was made of, or could not be made of.
    last: BTreeMap<SourceRef, String>,
    clusters: ClusterMap<Check>,
}

#[derive(Clone, Debug)]
struct Check {
    source: SourceRef,
    /// `None` for the revision of a tag, or if no revision is available.
    revision: Option<String>,
    /// Digest of the package. `None` if it could not be made.
    digest: Option<String>,
}

impl SourceChecks {
    /// Records that a package is about to be made for a cluster. Until it is made, the cluster is behind. `revision` is
    /// `None` for the revision of a tag, or if no revision is available.
    pub fn start(&mut self, cluster: &ClusterKey, source: &SourceRef, revision: Option<&str>) {
        if let Some(revision) = revision {
            self.last.insert(source.clone(), revision.to_owned());
        }
        let check = Check { source: source.clone(), revision: revision.map(str::to_owned), digest: None };
        self.clusters.insert(cluster.clone(), check);
    }

    /// Records the package that was made for a cluster.
    pub fn finish(&mut self, cluster: &ClusterKey, digest: &str) {
        if let Some(check) = self.clusters.get_mut(cluster) {
            check.digest = Some(digest.to_owned());
        }
    }

    /// Records that the package of a cluster does not come from a Source.
    pub fn clear(&mut self, cluster: &ClusterKey) {
        self.clusters.remove(cluster);
    }

    /// Removes all clusters but these.
    pub fn retain(&mut self, is_selected: impl Fn(&ClusterKey) -> bool) {
        self.clusters.retain(|cluster, _| is_selected(cluster));
    }

    /// Returns the progress of each Source. Clusters whose package does not come from a Source are left out.
    pub fn progress<'a>(
        &self,
        selected: impl Iterator<Item = &'a ClusterKey>,
        releases: &ClusterMap<Arc<AddonRelease>>,
    ) -> Vec<SourceProgress> {
        let mut sources: BTreeMap<SourceRef, Counts> = BTreeMap::new();
        for cluster in selected {
            let (check, release) = (self.clusters.get(cluster), releases.get(cluster).map(AsRef::as_ref));
            let pinned = release.and_then(pinned);
            if let Some((source, revision, _)) = pinned {
                let is_ready = release.is_some_and(AddonRelease::is_ready);
                sources.entry(source.clone()).or_default().add(revision, is_ready);
            }
            let source = check.map(|check| &check.source).or(pinned.map(|(source, ..)| source));
            if let Some(source) = source
                && !self.is_current(check, pinned.map(|(.., digest)| digest))
            {
                sources.entry(source.clone()).or_default().behind.push(cluster.name.clone());
            }
        }
        sources.into_iter().map(|(source, counts)| self.of_source(source, counts)).collect()
    }

    /// Returns whether a release has the package of the last revision.
    fn is_current(&self, check: Option<&Check>, digest: Option<&str>) -> bool {
        check.is_some_and(|check| {
            let is_last = check.revision.is_none() || check.revision.as_ref() == self.last.get(&check.source);
            is_last && check.digest.is_some() && check.digest.as_deref() == digest
        })
    }

    fn of_source(&self, source_ref: SourceRef, counts: Counts) -> SourceProgress {
        let Counts { revisions, mut behind } = counts;
        let mut revisions: Vec<_> = revisions
            .into_iter()
            .map(|(revision, (clusters, ready))| RevisionCount { revision, clusters, ready })
            .collect();
        revisions.sort_by(|a, b| b.clusters.cmp(&a.clusters).then_with(|| a.revision.cmp(&b.revision)));
        revisions.truncate(MAX_LISTED);
        let count = behind.len();
        behind.truncate(MAX_LISTED);
        SourceProgress {
            revision: self.last.get(&source_ref).cloned(),
            source_ref,
            revisions,
            behind: u32::try_from(count).unwrap_or(u32::MAX),
            behind_clusters: behind,
        }
    }
}

/// The clusters of a Source.
#[derive(Default)]
struct Counts {
    /// The number of clusters per revision, and how many of them are ready.
    revisions: BTreeMap<String, (u32, u32)>,
    behind: Vec<String>,
}

impl Counts {
    fn add(&mut self, revision: &str, is_ready: bool) {
        let (clusters, ready) = self.revisions.entry(revision.to_owned()).or_default();
        *clusters += 1;
        *ready += u32::from(is_ready);
    }
}

/// Returns the Source, the revision and the digest of the package of a release.
fn pinned(release: &AddonRelease) -> Option<(&SourceRef, &str, &str)> {
    let (source, pinned) = (release.spec.source.source_ref.as_ref()?, release.spec.pinned.as_ref()?);
    Some((source, &pinned.revision, &pinned.digest))
}

/// Returns how many clusters run which revisions, for example `3f1a354: 940, 9c1d2aa: 58, not ready: 2`. `selected` is the
/// number of all clusters. Returns `None` if there is no Source.
pub fn revisions_text(sources: &[SourceProgress], selected: usize) -> Option<String> {
    if sources.is_empty() {
        return None;
    }
    let counts = sources.iter().flat_map(|source| &source.revisions).filter(|count| count.ready > 0);
    let mut parts: Vec<_> =
        counts.clone().map(|count| format!("{}: {}", short_revision(&count.revision), count.ready)).collect();
    let ready: usize = counts.map(|count| usize::try_from(count.ready).unwrap_or(usize::MAX)).sum();
    if selected > ready {
        parts.push(format!("not ready: {}", selected - ready));
    }
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn apps() -> SourceRef {
        SourceRef { name: "apps".to_owned(), ..SourceRef::default() }
    }

    fn release(cluster: &str, revision: &str, digest: &str, ready: &str) -> (ClusterKey, Arc<AddonRelease>) {
        let object = serde_json::from_value(json!({
            "metadata": {"name": cluster, "namespace": "fleet", "generation": 1},
            "spec": {
                "cluster": cluster, "release": {"name": "web", "namespace": "web"},
                "source": {"sourceRef": {"name": "apps"}, "path": "web"},
                "pinned": {"revision": revision, "digest": digest},
            },
            "status": {"observedGeneration": 1, "conditions": [{
                "type": "Ready", "status": ready, "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }));
        (key(cluster), Arc::new(object.unwrap()))
    }

    fn checks(rows: &[(&str, &str, Option<&str>)]) -> SourceChecks {
        let mut checks = SourceChecks::default();
        for (cluster, revision, digest) in rows {
            checks.start(&key(cluster), &apps(), Some(revision));
            if let Some(digest) = digest {
                checks.finish(&key(cluster), digest);
            }
        }
        checks
    }

    #[test]
    fn clusters_are_counted_by_the_revision_of_their_package() {
        let releases = ClusterMap::from([
            release("alpha", "c2c2c2c2c2", "sha256:2", "True"),
            release("bravo", "c2c2c2c2c2", "sha256:2", "False"),
            release("delta", "c1c1c1c1c1", "sha256:1", "True"),
        ]);
        let clusters = ["alpha", "bravo", "delta", "echo"].map(key);
        // The package of delta is the same at the last revision, that of echo cannot be made.
        let checks = checks(&[
            ("alpha", "c2c2c2c2c2", Some("sha256:2")),
            ("bravo", "c2c2c2c2c2", Some("sha256:2")),
            ("delta", "c2c2c2c2c2", Some("sha256:1")),
            ("echo", "c2c2c2c2c2", None),
        ]);
        let progress = checks.progress(clusters.iter(), &releases);
        let count = |revision: &str, clusters, ready| RevisionCount {
            revision: revision.to_owned(),
            clusters,
            ready,
        };
        let expected = SourceProgress {
            source_ref: apps(),
            revision: Some("c2c2c2c2c2".to_owned()),
            revisions: vec![count("c2c2c2c2c2", 2, 1), count("c1c1c1c1c1", 1, 1)],
            behind: 1,
            behind_clusters: vec!["echo".to_owned()],
        };
        assert_eq!(progress, [expected]);
        let text = revisions_text(&progress, clusters.len());
        assert_eq!(text.as_deref(), Some("c2c2c2c: 1, c1c1c1c: 1, not ready: 2"));
        assert_eq!(revisions_text(&[], 4), None);
    }

    #[test]
    fn a_cluster_is_behind_unless_its_release_has_the_package_of_the_last_revision() {
        let releases = ClusterMap::from([release("alpha", "c1", "sha256:1", "True")]);
        let bravo = ("bravo", "c2", Some("sha256:2"));
        let rows = [
            (checks(&[]), 1, "nothing was made since the start"),
            (checks(&[("alpha", "c1", Some("sha256:1"))]), 0, "the package"),
            (
                checks(&[("alpha", "c1", Some("sha256:1")), bravo]),
                1,
                "another cluster has got a later revision",
            ),
            (
                checks(&[bravo, ("alpha", "c2", Some("sha256:1"))]),
                0,
                "the later revision has the same package",
            ),
            (checks(&[bravo, ("alpha", "c2", Some("sha256:2"))]), 1, "the release object is not written yet"),
            (checks(&[("alpha", "c2", None)]), 1, "the package cannot be made"),
        ];
        for (checks, behind, why) in rows {
            let progress = checks.progress([key("alpha")].iter(), &releases);
            assert_eq!(progress[0].behind, behind, "{why}");
        }
    }

    #[test]
    fn packages_of_tags_do_not_follow_the_revision_of_the_source() {
        let releases = ClusterMap::from([release("alpha", "c1", "sha256:1", "True")]);
        let mut checks = SourceChecks::default();
        checks.start(&key("alpha"), &apps(), None);
        checks.finish(&key("alpha"), "sha256:1");
        let progress = checks.progress([key("alpha")].iter(), &releases);
        assert_eq!((progress[0].revision.as_deref(), progress[0].behind), (None, 0));
        checks.clear(&key("bravo"));
        checks.retain(|cluster| cluster.name == "alpha");
        assert_eq!(checks.clusters.len(), 1);
        checks.clear(&key("alpha"));
        assert!(checks.clusters.is_empty());
    }
}
