//! What is shown of catalogs and charts.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use chandler_api::extensions::ExtensionCatalog;
use chandler_core::{catalog::Entry, version};
use chandler_source::{Chart, ChartSummary};
use chandler_tool::generated::tool::PackageInfo;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::Value;

use super::output::{brief, table};

/// As many letters of a description as a line has room for.
const BRIEF: usize = 60;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogView {
    namespace: String,
    name: String,
    ready: String,
    reason: String,
    message: String,
    packages: Option<u32>,
    read_at: Option<String>,
    url: String,
}

impl CatalogView {
    pub fn new(catalog: &ExtensionCatalog) -> Self {
        let status = catalog.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let text = |field: fn(&_) -> &String| ready.map(|ready| field(ready).clone());
        Self {
            namespace: catalog.namespace().unwrap_or_default(),
            name: catalog.name_any(),
            ready: text(|ready| &ready.status).unwrap_or_else(|| "Unknown".to_owned()),
            reason: text(|ready| &ready.reason).unwrap_or_else(|| "NotReadYet".to_owned()),
            message: text(|ready| &ready.message).unwrap_or_default(),
            packages: status.packages,
            read_at: status.read_at.map(|time| time.0.to_string()),
            url: catalog.spec.url.clone(),
        }
    }
}

pub fn catalogs(views: &[CatalogView]) -> String {
    if views.is_empty() {
        return "There is no ExtensionCatalog here.\n".to_owned();
    }
    let row = |view: &CatalogView| {
        let packages = view.packages.map_or_else(|| "-".to_owned(), |packages| packages.to_string());
        let read_at = view.read_at.clone().unwrap_or_else(|| "-".to_owned());
        let (ready, reason) = (view.ready.clone(), view.reason.clone());
        [view.namespace.clone(), view.name.clone(), ready, reason, packages, read_at, view.url.clone()]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NAMESPACE", "NAME", "READY", "REASON", "PACKAGES", "READ", "URL"], &rows)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundView {
    namespace: String,
    catalog: String,
    chart: String,
    version: String,
    app_version: Option<String>,
    kube_version: Option<String>,
    deprecated: bool,
    description: String,
}

impl FoundView {
    pub fn new(catalog: &ExtensionCatalog, chart: ChartSummary) -> Self {
        let ChartSummary { name, description, newest, .. } = chart;
        let Entry { version, app_version, kube_version, deprecated, annotations: _ } = newest;
        Self {
            namespace: catalog.namespace().unwrap_or_default(),
            catalog: catalog.name_any(),
            chart: name,
            version,
            app_version,
            kube_version,
            deprecated,
            description,
        }
    }
}

pub fn found(views: &[FoundView]) -> String {
    if views.is_empty() {
        return "No chart has all these words.\n".to_owned();
    }
    let row = |view: &FoundView| {
        let warning = if view.deprecated { "DEPRECATED " } else { "" };
        [
            view.namespace.clone(),
            format!("{}/{}", view.catalog, view.chart),
            view.version.clone(),
            or_dash(view.app_version.as_deref()),
            or_any(view.kube_version.as_deref()),
            format!("{warning}{}", brief(&view.description, BRIEF)),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NAMESPACE", "CHART", "VERSION", "APP VERSION", "KUBERNETES", "DESCRIPTION"], &rows)
}

/// What a package tells about itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspected {
    kube_version: Option<String>,
    dependencies: Vec<DependencyView>,
    /// The schema of the parameters, if the package has one.
    schema: Option<Value>,
    defaults: String,
    readme: String,
}

#[derive(Debug, Serialize)]
struct DependencyView {
    name: String,
    version: String,
}

impl Inspected {
    pub fn new(info: PackageInfo) -> Self {
        let dependencies = info.dependencies.into_iter();
        Self {
            kube_version: Some(info.kubernetes).filter(|range| !range.is_empty()),
            dependencies: dependencies
                .map(|one| DependencyView { name: one.name, version: one.version })
                .collect(),
            schema: serde_json::from_slice(&info.values_schema).ok(),
            defaults: info.default_values,
            readme: info.readme,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartView {
    namespace: String,
    catalog: String,
    chart: String,
    description: String,
    /// The one that is shown.
    pub version: String,
    versions: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<Inspected>,
}

impl ChartView {
    pub fn new(catalog: &ExtensionCatalog, chart: Chart, wanted: Option<&str>) -> Result<Self> {
        let Chart { summary, versions } = chart;
        let chosen = version::choose(
            wanted.or(Some(&summary.newest.version)),
            versions.iter().map(|version| version.version.as_str()),
        );
        let chosen = chosen.map(str::to_owned).with_context(|| {
            let newest = &summary.newest.version;
            let wanted = wanted.unwrap_or_default();
            format!("{} has no version {wanted}; its newest is {newest}", summary.name)
        })?;
        Ok(Self {
            namespace: catalog.namespace().unwrap_or_default(),
            catalog: catalog.name_any(),
            chart: summary.name,
            description: summary.description,
            version: chosen,
            versions,
            package: None,
        })
    }

    pub fn add(&mut self, package: Inspected) {
        self.package = Some(package);
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}/{} {}\n", self.catalog, self.chart, self.version);
        if !self.description.is_empty() {
            let _ = writeln!(text, "{}", self.description);
        }
        let row = |version: &Entry| {
            let state = if version.deprecated { "deprecated" } else { "" };
            [
                version.version.clone(),
                or_dash(version.app_version.as_deref()),
                or_any(version.kube_version.as_deref()),
                state.to_owned(),
            ]
        };
        let rows: Vec<_> = self.versions.iter().map(row).collect();
        let _ = write!(text, "\n{}", table(["VERSION", "APP VERSION", "KUBERNETES", ""], &rows));
        if let Some(package) = &self.package {
            package.add_to(&mut text);
        }
        text
    }
}

impl Inspected {
    fn add_to(&self, text: &mut String) {
        let mut part = |title: &str, content: &str| {
            if !content.trim().is_empty() {
                let _ = write!(text, "\n{title}\n{}\n", content.trim_end());
            }
        };
        part("KUBERNETES", self.kube_version.as_deref().unwrap_or_default());
        let needed: Vec<_> =
            self.dependencies.iter().map(|one| format!("{} {}", one.name, one.version)).collect();
        part("CHARTS INSIDE", &needed.join("\n"));
        part("DEFAULTS", &self.defaults);
        let schema = self.schema.as_ref().and_then(|schema| serde_json::to_string_pretty(schema).ok());
        part("SCHEMA", schema.as_deref().unwrap_or_default());
        part("README", &self.readme);
    }
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn or_any(range: Option<&str>) -> String {
    range.unwrap_or("any").to_owned()
}
