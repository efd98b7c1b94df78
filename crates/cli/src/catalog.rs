//! `chandler catalog`: what the catalogs of a management cluster offer.

mod output;
mod text;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use chandler_api::extensions::ExtensionCatalog;
use chandler_cli_support::{error_text, programs};
use chandler_source::Catalog;
use chandler_view::catalog::{
    CatalogView, ChartView, FoundView, ReadCatalog, Sources, catalogs, named, one_catalog,
};
use clap::{Args, Subcommand};

use self::output::Format;
use crate::{connection::Connection, packages::SourceArgs};

/// Catalogs.
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// List the catalogs: whether they can be read, and how many packages they have
    List(Common),
    /// Find charts by words in their name, description and keywords
    Search(SearchArgs),
    /// Show a chart: its versions, the Kubernetes versions they are for, its parameters and its README
    #[command(disable_version_flag = true)]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    connection: Connection,
    /// Only catalogs of this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Words that all have to be found; none: every chart
    #[arg(value_name = "TEXT")]
    words: Vec<String>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Catalog and chart, such as `platform/cert-manager`
    #[arg(value_name = "CATALOG/CHART")]
    chart: String,
    /// The version to show, or a range of versions [default: the newest]
    #[arg(long)]
    version: Option<String>,
    /// The package tool's binary, which reads parameters and README [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL", hide_env_values = true)]
    tool: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    source: SourceArgs,
}

pub async fn run(command: CatalogCommand) -> Result<()> {
    match command {
        CatalogCommand::List(common) => list(common).await,
        CatalogCommand::Search(args) => search(args).await,
        CatalogCommand::Show(args) => show(args).await,
    }
}

async fn list(common: Common) -> Result<()> {
    let Common { connection, namespace, output } = common;
    let client = connection.client().await?;
    let catalogs = catalogs(&client, namespace.as_deref()).await?;
    let views: Vec<_> = catalogs.iter().map(CatalogView::new).collect();
    output.print(&views, || text::catalogs(&views))
}

/// A catalog that cannot be read does not hide the others.
async fn search(args: SearchArgs) -> Result<()> {
    let SearchArgs { words, common: Common { connection, namespace, output }, source } = args;
    let client = connection.client().await?;
    let catalogs = catalogs(&client, namespace.as_deref()).await?;
    ensure!(!catalogs.is_empty(), "there is no ExtensionCatalog here; create one, or name another namespace");
    let sources = Sources::new(client, source.open()?);
    let (text, mut found, mut unread) = (words.join(" "), Vec::new(), 0);
    for catalog in &catalogs {
        match read(&sources, catalog).await {
            Ok(read) => {
                let charts = read.search(&text)?;
                found.extend(charts.into_iter().map(|chart| FoundView::new(catalog, chart)));
            }
            Err(error) => {
                unread += 1;
                eprintln!("warning: {}: {}", named(catalog), error_text(&error));
            }
        }
    }
    ensure!(unread < catalogs.len(), "no catalog can be read");
    output.print(&found, || text::found(&found))
}

async fn show(args: ShowArgs) -> Result<()> {
    let ShowArgs { chart, version, tool, common: Common { connection, namespace, output }, source } = args;
    let (catalog, name) =
        chart.split_once('/').context("write it as CATALOG/CHART, such as `platform/cert-manager`")?;
    let client = connection.client().await?;
    let catalog = one_catalog(catalogs(&client, namespace.as_deref()).await?, catalog)?;
    let sources = Sources::new(client, source.open()?);
    let read = read(&sources, &catalog).await?;
    let found = read.chart(name)?.with_context(|| {
        format!("{} has no chart {name}; `chandler catalog search` shows what it has", named(&catalog))
    })?;
    let mut view = ChartView::new(&catalog, found, version.as_deref())?;
    match programs::package_tool(tool) {
        Ok(tool) => view.add(sources.inspect(&catalog, name, &view.version, tool).await?),
        Err(error) => eprintln!("warning: parameters and README are not shown: {}", error_text(&error)),
    }
    output.print(&view, || text::chart(&view))
}

/// A catalog that cannot be read now is shown as it was read before, with a warning.
async fn read(sources: &Sources, catalog: &ExtensionCatalog) -> Result<Catalog> {
    let ReadCatalog { catalog: read, outdated } = sources.read(catalog).await?;
    if let Some(error) = outdated {
        eprintln!("warning: {}: {error}; shown is what was read before", named(catalog));
    }
    Ok(read)
}
