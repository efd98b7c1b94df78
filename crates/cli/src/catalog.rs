//! `chandler catalog`: the catalogs of a management cluster and their charts.

mod text;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use chandler_api::extensions::ExtensionCatalog;
use chandler_cli_support::{error_text, programs};
use chandler_source::Catalog;
use chandler_view::catalog::{
    CatalogReader, CatalogView, ChartView, FetchedCatalog, SearchResultView, find_catalog, list_catalogs,
    list_extensions, namespaced_name,
};
use clap::{Args, Subcommand};

use crate::{
    connection::Connection, output::OutputFormat, packages::SourceArgs, source::PlatformNamespaceArgs,
};

/// List catalogs, search for charts and show them.
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// List catalogs with their readiness and number of packages
    List(CommonArgs),
    /// List Extensions, with what users need to know to choose one
    Extensions(ExtensionsArgs),
    /// Search for charts by name, description and keywords
    Search(SearchArgs),
    /// Show the versions, default values, values schema and README of a chart
    #[command(disable_version_flag = true)]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub struct CommonArgs {
    #[command(flatten)]
    connection: Connection,
    /// Use only catalogs in this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

#[derive(Debug, Args)]
pub struct ExtensionsArgs {
    /// Search terms that must all match names, description or categories [default: show all Extensions]
    #[arg(value_name = "TEXT")]
    terms: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Search terms that must all match [default: show all charts]
    #[arg(value_name = "TEXT")]
    terms: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    platform: PlatformNamespaceArgs,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Catalog and chart, such as `platform/cert-manager`
    #[arg(value_name = "CATALOG/CHART")]
    chart: String,
    /// Version, or range of versions, to show [default: the newest]
    #[arg(long)]
    version: Option<String>,
    /// The package tool's binary, which reads parameters and README [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL", hide_env_values = true)]
    tool: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    platform: PlatformNamespaceArgs,
    #[command(flatten)]
    source: SourceArgs,
}

pub async fn run(command: CatalogCommand) -> Result<()> {
    match command {
        CatalogCommand::List(common) => list(common).await,
        CatalogCommand::Extensions(args) => extensions(args).await,
        CatalogCommand::Search(args) => search(args).await,
        CatalogCommand::Show(args) => show(args).await,
    }
}

async fn list(common: CommonArgs) -> Result<()> {
    let CommonArgs { connection, namespace, output } = common;
    let client = connection.client().await?;
    let catalogs = list_catalogs(&client, namespace.as_deref()).await?;
    let views: Vec<_> = catalogs.iter().map(CatalogView::new).collect();
    output.print(&views, || text::catalogs(&views))
}

async fn extensions(args: ExtensionsArgs) -> Result<()> {
    let ExtensionsArgs { terms, common: CommonArgs { connection, namespace, output } } = args;
    let client = connection.client().await?;
    let views = list_extensions(&client, namespace.as_deref(), &terms).await?;
    output.print(&views, || text::extensions(&views, !terms.is_empty()))
}

/// Prints a warning for each catalog that cannot be read. Fails if none can be read.
async fn search(args: SearchArgs) -> Result<()> {
    let SearchArgs { terms, common, platform, source } = args;
    let CommonArgs { connection, namespace, output } = common;
    let client = connection.client().await?;
    let catalogs = list_catalogs(&client, namespace.as_deref()).await?;
    ensure!(!catalogs.is_empty(), "no ExtensionCatalog found; create one, or choose another namespace");
    let reader = CatalogReader::new(client, source.open()?, platform.platform_namespace);
    let (query, mut results, mut failed) = (terms.join(" "), Vec::new(), 0);
    for catalog in &catalogs {
        match read(&reader, catalog).await {
            Ok(fetched) => {
                let charts = fetched.search(&query)?;
                results.extend(charts.into_iter().map(|chart| SearchResultView::new(catalog, chart)));
            }
            Err(error) => {
                failed += 1;
                eprintln!("warning: {}: {}", namespaced_name(catalog), error_text(&error));
            }
        }
    }
    ensure!(failed < catalogs.len(), "no catalog can be read");
    output.print(&results, || text::search_results(&results))
}

async fn show(args: ShowArgs) -> Result<()> {
    let ShowArgs { chart, version, tool, common, platform, source } = args;
    let CommonArgs { connection, namespace, output } = common;
    let (catalog, name) =
        chart.split_once('/').context("use CATALOG/CHART, such as `platform/cert-manager`")?;
    let client = connection.client().await?;
    let catalog = find_catalog(list_catalogs(&client, namespace.as_deref()).await?, catalog)?;
    let reader = CatalogReader::new(client, source.open()?, platform.platform_namespace);
    let fetched = read(&reader, &catalog).await?;
    let chart = fetched.chart(name)?.with_context(|| {
        format!(
            "{} has no chart {name}; list its charts with `chandler catalog search`",
            namespaced_name(&catalog)
        )
    })?;
    let mut view = ChartView::new(&catalog, chart, version.as_deref())?;
    match programs::package_tool(tool) {
        Ok(tool) => view.package = Some(reader.inspect(&catalog, name, &view.version, tool).await?),
        Err(error) => {
            eprintln!("warning: cannot show default values, schema and README: {}", error_text(&error));
        }
    }
    output.print(&view, || text::chart(&view))
}

/// Reads a catalog. Prints a warning if it comes from the cache because its source is unavailable.
async fn read(reader: &CatalogReader, catalog: &ExtensionCatalog) -> Result<Catalog> {
    let FetchedCatalog { catalog: fetched, source_error } = reader.read(catalog).await?;
    if let Some(error) = source_error {
        eprintln!("warning: {}: {error}; showing the cached catalog", namespaced_name(catalog));
    }
    Ok(fetched)
}
