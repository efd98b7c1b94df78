//! `chandler get`: the add-ons of clusters and their state.

mod table;

use anyhow::Result;
use chandler_view::{
    fleet::FleetReader,
    listing::{Filter, Listing},
};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::{
    connection::{Connection, NamespaceArgs},
    output::{Screen, StructuredFormat},
    progress::Progress,
};

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Show only this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Show only add-ons that are not ready
    #[arg(long)]
    not_ready: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A table of clusters and add-ons, followed by problems
    Table,
    /// One line per release, with health, version, commit, revision, policy, age, reason and message
    Wide,
    Json,
    Yaml,
}

pub async fn run(arguments: GetArgs) -> Result<()> {
    let GetArgs { connection, namespace, cluster, not_ready, output } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.resolve(&client);
    let fleet = FleetReader::new(client, namespace.clone()).read(&Progress::start()).await?;
    let listing = Listing::new(&fleet, &Filter { cluster, not_ready });
    let (screen, now) = (Screen::detect(), Timestamp::now());
    let text = match output {
        Output::Json => StructuredFormat::Json.text(&listing)?,
        Output::Yaml => StructuredFormat::Yaml.text(&listing)?,
        Output::Table | Output::Wide if listing.releases.is_empty() => {
            empty_message(&listing, namespace.as_deref())
        }
        Output::Table => table::matrix(&listing, screen),
        Output::Wide => table::wide(&listing, screen, now),
    };
    print!("{text}");
    Ok(())
}

/// Returns the text for a listing without rows.
fn empty_message(listing: &Listing, namespace: Option<&str>) -> String {
    if listing.summary.releases > 0 {
        return format!("Nothing to show: {}.\n", listing.summary);
    }
    match namespace {
        Some(namespace) => {
            format!("No add-ons found in namespace {namespace}. Use --all-namespaces for all namespaces.\n")
        }
        None => "No add-ons found in any namespace.\n".to_owned(),
    }
}
