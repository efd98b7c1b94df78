//! `chandler history`: the last revisions of releases.

use anyhow::Result;
use chandler_api::status::RevisionRecord;
use chandler_view::history::ReleaseHistory;
use clap::Args;

use crate::{object_argument::ObjectArgs, output::table};

/// Show the last revisions of the releases of a placement, or of one release
///
/// They are read from the status of the release objects, which has the last five revisions, so the command needs no access to
/// the workload clusters. `helm history` on a workload cluster shows all revisions that are stored there.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

pub async fn run(arguments: HistoryArgs) -> Result<()> {
    let HistoryArgs { object } = arguments;
    let selection = object.read().await?;
    let objects = selection.objects()?;
    let history = ReleaseHistory::of(&objects, &selection.fleet);
    selection.print_value(&history, || text(&history, &selection.arguments(&objects)))
}

fn text(history: &[ReleaseHistory], arguments: &str) -> String {
    if history.is_empty() {
        return format!("There is no release; to see why: chandler describe {arguments}\n");
    }
    let rows: Vec<_> = history.iter().flat_map(rows).collect();
    table(["CLUSTER", "RELEASE", "REVISION", "STATUS", "VERSION", "CREATED"], &rows)
}

/// Returns a row for each revision, or one that shows that there is none.
fn rows(history: &ReleaseHistory) -> Vec<[String; 6]> {
    let ReleaseHistory { cluster, release, revisions, .. } = history;
    let row = |rest: [String; 4]| {
        let [revision, status, version, created] = rest;
        [cluster.clone(), release.clone(), revision, status, version, created]
    };
    if revisions.is_empty() {
        return vec![row([(); 4].map(|()| "-".to_owned()))];
    }
    let of_revision = |one: &RevisionRecord| {
        let version = one.version.clone().unwrap_or_else(|| "-".to_owned());
        row([one.revision.to_string(), one.status.clone(), version, one.at.0.to_string()])
    };
    revisions.iter().map(of_revision).collect()
}

#[cfg(test)]
mod tests {
    use chandler_view::fleet::ObjectName;
    use serde_json::{Value, json};

    use super::*;

    fn history(cluster: &str, revisions: Value) -> ReleaseHistory {
        ReleaseHistory {
            object: ObjectName {
                kind: "HelmReleaseProxy".to_owned(),
                namespace: "fleet".to_owned(),
                name: format!("hello-{cluster}"),
            },
            cluster: cluster.to_owned(),
            release: "default/hello".to_owned(),
            revisions: serde_json::from_value(revisions).unwrap(),
        }
    }

    #[test]
    fn each_revision_is_a_row() {
        let revisions = json!([
            {"revision": 2, "status": "deployed", "version": "1.1.0", "at": "2026-01-02T00:00:00Z"},
            {"revision": 1, "status": "superseded", "at": "2026-01-01T00:00:00Z"},
        ]);
        assert_eq!(
            text(&[history("alpha", revisions), history("bravo", json!([]))], ""),
            "CLUSTER   RELEASE         REVISION   STATUS       VERSION   CREATED\n\
             alpha     default/hello   2          deployed     1.1.0     2026-01-02T00:00:00Z\n\
             alpha     default/hello   1          superseded   -         2026-01-01T00:00:00Z\n\
             bravo     default/hello   -          -            -         -\n"
        );
        assert_eq!(
            text(&[], "hcp/hello --namespace fleet"),
            "There is no release; to see why: chandler describe hcp/hello --namespace fleet\n"
        );
    }
}
