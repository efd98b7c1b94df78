//! `chandler where`: which releases on which clusters have a commit.

use anyhow::Result;
use chandler_core::source::short_revision;
use chandler_view::{
    commits::{CommitReport, Objects, Place},
    fleet::{FleetReader, State},
    sources::SourceReader,
};
use clap::Args;

use crate::{
    connection::{Connection, NamespaceArgs},
    output::{OutputFormat, table, truncate},
    progress::Progress,
    source::PlatformNamespaceArgs,
};

/// Maximum length of a message in a table.
const MESSAGE_LENGTH: usize = 160;

/// Show which releases on which clusters, and which Syncs, have a commit of a Source
///
/// Compares packages, not only commits: a release whose package the commit does not change has it as well. Reads the status
/// of objects, no repository.
///
/// Exit codes: 0 if the commit is known, 1 if it is unknown or ambiguous.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// Id of the commit or digest of the artifact, or its first 4 or more characters
    commit: String,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    platform: PlatformNamespaceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

pub async fn run(arguments: WhereArgs) -> Result<()> {
    let WhereArgs { commit, connection, namespace, platform, output } = arguments;
    let PlatformNamespaceArgs { platform_namespace } = platform;
    let client = connection.client().await?;
    let namespace = namespace.resolve(&client);
    let mut progress = Progress::start();
    let reader = SourceReader { client: &client, namespace: namespace.as_deref(), progress: &progress };
    let sources = reader.sources_with_platform(&platform_namespace).await?;
    let syncs = reader.syncs().await?;
    let fleet = FleetReader::new(client.clone(), namespace.clone()).read(&progress).await?;
    progress.finish();
    let objects = Objects { fleet: &fleet, sources: &sources, syncs: &syncs, platform: &platform_namespace };
    let report = CommitReport::new(objects, &commit)?;
    output.print(&report, || text(&report))
}

fn text(report: &CommitReport) -> String {
    let subject = report.subject.as_ref().map(|subject| format!(" ({subject})")).unwrap_or_default();
    let title = format!("{}{subject}, of Source {}\n", report.commit, report.sources.join(", "));
    if report.places.is_empty() {
        return format!("{title}\nNo release and no Sync uses it.\n");
    }
    let rows: Vec<_> = report.places.iter().map(row).collect();
    let header = ["NAMESPACE", "CLUSTER", "ADD-ON", "FOLDER", "ARRIVAL", "COMMIT", "STATE", "MESSAGE"];
    format!("{title}\n{}\n{}\n", table(header, &rows), report.summary)
}

fn row(place: &Place) -> [String; 8] {
    let is_sync = place.cluster.is_none();
    [
        place.namespace.clone(),
        place.cluster.clone().unwrap_or_else(|| "(management)".to_owned()),
        if is_sync { format!("{} {}", place.kind, place.name) } else { place.name.clone() },
        if place.folder.is_empty() { "-".to_owned() } else { place.folder.clone() },
        place.arrival.as_str().to_owned(),
        place.revision.as_deref().map_or("-", short_revision).to_owned(),
        place.state.map_or("-", State::as_str).to_owned(),
        truncate(&place.message, MESSAGE_LENGTH),
    ]
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{folder_fleet, source};

    use super::*;

    #[test]
    fn one_line_per_release_and_a_summary() {
        let fleet =
            folder_fleet(&[("alpha", "aaaa1111", "True"), ("bravo", "bbbb2222", "False")], "bbbb2222", &[]);
        let sources = [source("apps", &["bbbb2222", "aaaa1111"])];
        let objects = Objects { fleet: &fleet, sources: &sources, syncs: &[], platform: "platform" };
        let report = CommitReport::new(objects, "bbbb").unwrap();
        let expected = "\
bbbb2222, of Source fleet/apps

NAMESPACE   CLUSTER   ADD-ON   FOLDER   ARRIVAL     COMMIT    STATE    MESSAGE
fleet       alpha     web      web      Unchanged   aaaa111   Ready
fleet       bravo     web      web      Failed      bbbb222   Failed   a.yaml, line 3: bad

arrived at 1 of 2 places: 1 unchanged, 1 failed
";
        assert_eq!(text(&report), expected);
    }
}
