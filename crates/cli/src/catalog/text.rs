//! Catalogs and charts as text.

use std::fmt::Write as _;

use chandler_core::catalog::Entry;
use chandler_view::catalog::{CatalogView, ChartView, ExtensionView, PackageView, SearchResultView};

use crate::output::{table, truncate};

/// Maximum length of a description in a table.
const DESCRIPTION_LENGTH: usize = 60;

pub fn catalogs(views: &[CatalogView]) -> String {
    if views.is_empty() {
        return "No ExtensionCatalog found.\n".to_owned();
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

pub fn extensions(views: &[ExtensionView], has_terms: bool) -> String {
    if views.is_empty() {
        let none =
            if has_terms { "No Extension matches all search terms.\n" } else { "No Extension found.\n" };
        return none.to_owned();
    }
    let row = |view: &ExtensionView| {
        let categories = view.categories.join(",");
        [
            view.namespace.clone(),
            view.name.clone(),
            or_dash(view.display_name.as_deref()),
            or_dash(view.newest.as_deref()),
            or_dash(view.app_version.as_deref()),
            or_dash(Some(categories.as_str()).filter(|text| !text.is_empty())),
            or_dash(view.documentation_url.as_deref()),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(
        ["NAMESPACE", "NAME", "DISPLAY NAME", "NEWEST", "APP VERSION", "CATEGORIES", "DOCUMENTATION"],
        &rows,
    )
}

pub fn search_results(views: &[SearchResultView]) -> String {
    if views.is_empty() {
        return "No chart matches all search terms.\n".to_owned();
    }
    let row = |view: &SearchResultView| {
        let warning = if view.deprecated { "DEPRECATED " } else { "" };
        [
            view.namespace.clone(),
            format!("{}/{}", view.catalog, view.chart),
            view.version.clone(),
            or_dash(view.app_version.as_deref()),
            or_any(view.kube_version.as_deref()),
            format!("{warning}{}", truncate(&view.description, DESCRIPTION_LENGTH)),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NAMESPACE", "CHART", "VERSION", "APP VERSION", "KUBERNETES", "DESCRIPTION"], &rows)
}

pub fn chart(view: &ChartView) -> String {
    let mut text = format!("{}/{} {}\n", view.catalog, view.chart, view.version);
    if !view.description.is_empty() {
        let _ = writeln!(text, "{}", view.description);
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
    let rows: Vec<_> = view.versions.iter().map(row).collect();
    let _ = write!(text, "\n{}", table(["VERSION", "APP VERSION", "KUBERNETES", ""], &rows));
    if let Some(package) = &view.package {
        write_package(package, &mut text);
    }
    text
}

fn write_package(package: &PackageView, text: &mut String) {
    let mut section = |title: &str, content: &str| {
        if !content.trim().is_empty() {
            let _ = write!(text, "\n{title}\n{}\n", content.trim_end());
        }
    };
    section("KUBERNETES", package.kube_version.as_deref().unwrap_or_default());
    let dependencies: Vec<_> = package
        .dependencies
        .iter()
        .map(|dependency| format!("{} {}", dependency.name, dependency.version))
        .collect();
    section("DEPENDENCIES", &dependencies.join("\n"));
    section("DEFAULT VALUES", &package.defaults);
    let schema = package.schema.as_ref().and_then(|schema| serde_json::to_string_pretty(schema).ok());
    section("VALUES SCHEMA", schema.as_deref().unwrap_or_default());
    section("README", &package.readme);
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn or_any(range: Option<&str>) -> String {
    range.unwrap_or("any").to_owned()
}
