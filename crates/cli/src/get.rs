//! `chandler get`: the fleet at a glance.

mod table;

use anyhow::Result;
use chandler_view::{
    fleet::Reader,
    listing::{Filter, Listing},
};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::{
    connection::{Connection, Scope},
    output::{Screen, Structured},
    progress::Progress,
};

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    scope: Scope,
    /// Only this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Only what is not ready
    #[arg(long)]
    not_ready: bool,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// Clusters and add-ons as a table, and what is wrong
    Table,
    /// A line per release with version, revision, reason and since when
    Wide,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

pub async fn run(arguments: GetArgs) -> Result<()> {
    let GetArgs { connection, scope, cluster, not_ready, output } = arguments;
    let client = connection.client().await?;
    let namespace = scope.resolve(&client);
    let fleet = Reader::new(client, namespace.clone()).fleet(&Progress::start()).await?;
    let listing = Listing::of(&fleet, &Filter { cluster, not_ready });
    let (screen, now) = (Screen::detect(), Timestamp::now());
    let text = match output {
        Output::Json => Structured::Json.text(&listing)?,
        Output::Yaml => Structured::Yaml.text(&listing)?,
        Output::Table | Output::Wide if listing.releases.is_empty() => {
            nothing(&listing, namespace.as_deref())
        }
        Output::Table => table::matrix(&listing, screen),
        Output::Wide => table::wide(&listing, screen, now),
    };
    print!("{text}");
    Ok(())
}

fn nothing(listing: &Listing, namespace: Option<&str>) -> String {
    if listing.summary.releases > 0 {
        return format!("Nothing to show: {}.\n", listing.summary);
    }
    match namespace {
        Some(namespace) => {
            format!("No add-ons in namespace {namespace}. All namespaces: --all-namespaces.\n")
        }
        None => "No add-ons in any namespace.\n".to_owned(),
    }
}
