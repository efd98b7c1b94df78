//! `chandler history`: lists the revisions of releases.

use anyhow::Result;
use chandler_view::{
    fleet::Release,
    suspend_and_retry::{AnnotatedObjects, releases_of},
};
use clap::Args;
use serde_json::json;

use crate::{object_argument::ObjectArgs, output::table};

/// List the last revisions of releases
///
/// Those of all releases of a placement, or of the one on a cluster, newest first. `chandler rollback` restores one.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

pub async fn run(arguments: HistoryArgs) -> Result<()> {
    let HistoryArgs { object } = arguments;
    let selection = object.read().await?;
    let releases = match selection.objects()? {
        AnnotatedObjects::Placement(placement) => releases_of(&selection.fleet, placement),
        AnnotatedObjects::Releases(releases) => releases,
    };
    let all: Vec<_> = releases
        .iter()
        .map(|release| json!({"cluster": release.cluster, "history": release.status.history}))
        .collect();
    selection.print_value(&all, || text(&releases))
}

fn text(releases: &[&Release]) -> String {
    let rows = releases.iter().flat_map(|release| {
        release.status.history.iter().map(|record| {
            [
                release.cluster.clone(),
                record.revision.to_string(),
                record.status.clone(),
                record.version.clone().unwrap_or_else(|| "-".to_owned()),
                record.at.0.to_string(),
            ]
        })
    });
    table(["CLUSTER", "REVISION", "STATUS", "VERSION", "CREATED"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{ready, release};

    use super::*;

    #[test]
    fn revisions_are_listed_per_cluster() {
        let mut status = ready("True", "Ready", "");
        status["history"] = json!([
            {"revision": 2, "status": "deployed", "version": "1.1.0", "at": "2026-01-02T00:00:00Z"},
            {"revision": 1, "status": "superseded", "at": "2026-01-01T00:00:00Z"},
        ]);
        let release = release("hello", "alpha", &status);
        let expected = "\
CLUSTER   REVISION   STATUS       VERSION   CREATED
alpha     2          deployed     1.1.0     2026-01-02T00:00:00Z
alpha     1          superseded   -         2026-01-01T00:00:00Z
";
        assert_eq!(text(&[&release]), expected);
    }
}
