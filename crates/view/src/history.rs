//! Builds what `chandler history` shows: the last revisions of releases. Pure.

use chandler_api::status::RevisionRecord;
use serde::Serialize;

use crate::{
    fleet::{Fleet, ObjectName, Release},
    suspend_and_retry::AnnotatedObjects,
};

/// The last revisions of a release, as its release object reports them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseHistory {
    pub object: ObjectName,
    pub cluster: String,
    /// Namespace and name of the release on the workload cluster, joined by `/`.
    pub release: String,
    /// Newest first. Empty if the release is not installed, as far as it is known.
    pub revisions: Vec<RevisionRecord>,
}

impl ReleaseHistory {
    /// Returns the histories of the releases that a user has selected, ordered by cluster.
    pub fn of(objects: &AnnotatedObjects<'_>, fleet: &Fleet) -> Vec<Self> {
        let mut all: Vec<_> = objects.releases(fleet).into_iter().map(Self::new).collect();
        all.sort_by(|a, b| (&a.cluster, &a.object).cmp(&(&b.cluster, &b.object)));
        all
    }

    fn new(release: &Release) -> Self {
        Self {
            object: release.object.clone(),
            cluster: release.cluster.clone(),
            release: release.release_name.clone(),
            revisions: release.status.history.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        description::ResourceArgument,
        fixtures::{placement, release},
    };

    fn history(fleet: &Fleet, name: &str, cluster: Option<&str>) -> Value {
        let found = ResourceArgument::parse(name).unwrap().find(fleet, "fleet").unwrap();
        let objects = AnnotatedObjects::new(&found, fleet, cluster).unwrap();
        serde_json::to_value(ReleaseHistory::of(&objects, fleet)).unwrap()
    }

    #[test]
    fn the_revisions_of_the_selected_releases_are_listed_by_cluster() {
        let revisions = json!([
            {"revision": 2, "status": "deployed", "version": "1.1.0", "at": "2026-01-02T00:00:00Z"},
            {"revision": 1, "status": "superseded", "at": "2026-01-01T00:00:00Z"},
        ]);
        let on = |cluster: &str, revisions: &Value| release("hello", cluster, &json!({"history": revisions}));
        let fleet = Fleet {
            placements: vec![placement("hello", &["alpha", "bravo"])],
            releases: vec![
                on("bravo", &json!([])),
                on("alpha", &revisions),
                release("other", "alpha", &json!({})),
            ],
        };
        let expected = |cluster: &str, revisions: &Value| {
            let object =
                json!({"kind": "HelmReleaseProxy", "namespace": "fleet", "name": format!("hello-{cluster}")});
            json!({"object": object, "cluster": cluster, "release": "default/hello", "revisions": revisions})
        };
        let (alpha, bravo) = (expected("alpha", &revisions), expected("bravo", &json!([])));
        assert_eq!(history(&fleet, "hello", None), json!([alpha, bravo]));
        assert_eq!(history(&fleet, "hcp/hello", Some("bravo")), json!([bravo]));
        assert_eq!(history(&fleet, "hrp/hello-alpha", None), json!([alpha]));
    }
}
