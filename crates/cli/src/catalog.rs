//! `chandler catalog`: what the catalogs of a management cluster offer.

mod output;
mod sources;
mod views;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use chandler_api::extensions::ExtensionCatalog;
use chandler_cli_support::{error_text, programs};
use clap::{Args, Subcommand};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use self::{
    output::Format,
    sources::Sources,
    views::{CatalogView, ChartView, FoundView},
};
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
    output.print(&views, || views::catalogs(&views))
}

/// A catalog that cannot be read does not hide the others.
async fn search(args: SearchArgs) -> Result<()> {
    let SearchArgs { words, common: Common { connection, namespace, output }, source } = args;
    let client = connection.client().await?;
    let catalogs = catalogs(&client, namespace.as_deref()).await?;
    ensure!(!catalogs.is_empty(), "there is no ExtensionCatalog here; create one, or name another namespace");
    let sources = Sources::open(client, source)?;
    let (text, mut found, mut unread) = (words.join(" "), Vec::new(), 0);
    for catalog in &catalogs {
        match sources.read(catalog).await {
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
    output.print(&found, || views::found(&found))
}

async fn show(args: ShowArgs) -> Result<()> {
    let ShowArgs { chart, version, tool, common: Common { connection, namespace, output }, source } = args;
    let (catalog, name) =
        chart.split_once('/').context("write it as CATALOG/CHART, such as `platform/cert-manager`")?;
    let client = connection.client().await?;
    let catalog = one_catalog(catalogs(&client, namespace.as_deref()).await?, catalog)?;
    let sources = Sources::open(client, source)?;
    let read = sources.read(&catalog).await?;
    let found = read.chart(name)?.with_context(|| {
        format!("{} has no chart {name}; `chandler catalog search` shows what it has", named(&catalog))
    })?;
    let mut view = ChartView::new(&catalog, found, version.as_deref())?;
    match programs::package_tool(tool) {
        Ok(tool) => view.add(sources.inspect(&catalog, name, &view.version, tool).await?),
        Err(error) => eprintln!("warning: parameters and README are not shown: {}", error_text(&error)),
    }
    output.print(&view, || view.text())
}

async fn catalogs(client: &Client, namespace: Option<&str>) -> Result<Vec<ExtensionCatalog>> {
    let api: Api<ExtensionCatalog> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = api.list(&ListParams::default()).await;
    let mut catalogs = listed
        .context("listing ExtensionCatalogs; are Chandler's kinds installed (`chandler crds`), and may you list them?")?
        .items;
    catalogs.sort_by_key(named);
    Ok(catalogs)
}

fn one_catalog(catalogs: Vec<ExtensionCatalog>, name: &str) -> Result<ExtensionCatalog> {
    let mut fitting: Vec<_> = catalogs.into_iter().filter(|catalog| catalog.name_any() == name).collect();
    if fitting.len() > 1 {
        let namespaces: Vec<_> = fitting.iter().filter_map(kube::ResourceExt::namespace).collect();
        bail!("there is a catalog {name} in each of {}; choose with --namespace", namespaces.join(", "));
    }
    fitting.pop().with_context(|| format!("there is no catalog {name}; `chandler catalog list` shows them"))
}

fn named(catalog: &ExtensionCatalog) -> String {
    format!("{}/{}", catalog.namespace().unwrap_or_default(), catalog.name_any())
}
