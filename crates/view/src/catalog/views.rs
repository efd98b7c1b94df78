//! Catalogs and charts as commands show them.

use chandler_api::extensions::{Extension, ExtensionCatalog};
use chandler_core::{
    catalog::{Entry, location},
    conditions,
    url_login::WithoutLogin,
    version,
};
use chandler_source::{Chart, ChartSummary};
use chandler_tool::generated::tool::PackageInfo;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::Value;

use super::Error;

/// An ExtensionCatalog.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogView {
    pub namespace: String,
    pub name: String,
    pub ready: String,
    pub reason: String,
    pub message: String,
    pub packages: Option<u32>,
    pub read_at: Option<String>,
    /// The URL, or the folder of a Source.
    pub url: String,
    /// The revision of the Source that the content was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

impl CatalogView {
    pub fn new(catalog: &ExtensionCatalog) -> Self {
        let status = catalog.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, "Ready");
        let text = |field: fn(&_) -> &String| ready.map(|ready| field(ready).clone());
        Self {
            namespace: catalog.namespace().unwrap_or_default(),
            name: catalog.name_any(),
            ready: text(|ready| &ready.status).unwrap_or_else(|| "Unknown".to_owned()),
            reason: text(|ready| &ready.reason).unwrap_or_else(|| "NotReadYet".to_owned()),
            message: text(|ready| &ready.message).unwrap_or_default(),
            packages: status.packages,
            read_at: status.read_at.map(|time| time.0.to_string()),
            url: WithoutLogin(&location(&catalog.spec)).to_string(),
            revision: status.revision,
        }
    }
}

/// An Extension.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionView {
    pub namespace: String,
    pub name: String,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub newest: Option<String>,
    /// Version of the application in the newest version.
    pub app_version: Option<String>,
    pub categories: Vec<String>,
    #[serde(rename = "documentationURL")]
    pub documentation_url: Option<String>,
}

impl ExtensionView {
    pub fn new(extension: &Extension) -> Self {
        let (spec, status) = (extension.spec.clone(), extension.status.clone().unwrap_or_default());
        Self {
            namespace: extension.namespace().unwrap_or_default(),
            name: extension.name_any(),
            display_name: spec.display_name,
            description: spec.description,
            newest: status.newest,
            app_version: status.app_version,
            categories: spec.categories,
            documentation_url: spec.documentation_url,
        }
    }

    /// Returns whether all terms occur in its names, its description or its categories, in any letter case.
    pub fn matches(&self, terms: &[String]) -> bool {
        let named = [Some(&self.name), self.display_name.as_ref(), self.description.as_ref()];
        let texts = named.into_iter().flatten().chain(&self.categories).map(|text| text.to_lowercase());
        let texts: Vec<_> = texts.collect();
        terms.iter().all(|term| texts.iter().any(|text| text.contains(&term.to_lowercase())))
    }
}

/// A chart that a search found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResultView {
    pub namespace: String,
    pub catalog: String,
    pub chart: String,
    pub version: String,
    pub app_version: Option<String>,
    pub kube_version: Option<String>,
    pub deprecated: bool,
    pub description: String,
}

impl SearchResultView {
    pub fn new(catalog: &ExtensionCatalog, chart: ChartSummary) -> Self {
        let ChartSummary { name, description, newest, .. } = chart;
        let Entry { version, app_version, kube_version, deprecated, annotations: _, folder: _ } = newest;
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

/// The contents of a package.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageView {
    pub kube_version: Option<String>,
    pub dependencies: Vec<DependencyView>,
    /// The schema of the values.
    pub schema: Option<Value>,
    pub defaults: String,
    pub readme: String,
}

/// A chart that a package depends on.
#[derive(Debug, Serialize)]
pub struct DependencyView {
    pub name: String,
    pub version: String,
}

impl PackageView {
    pub fn new(info: PackageInfo) -> Self {
        let dependencies = info.dependencies.into_iter();
        Self {
            kube_version: Some(info.kubernetes).filter(|range| !range.is_empty()),
            dependencies: dependencies
                .map(|dependency| DependencyView { name: dependency.name, version: dependency.version })
                .collect(),
            schema: serde_json::from_slice(&info.values_schema).ok(),
            defaults: info.default_values,
            readme: info.readme,
        }
    }
}

/// A chart with its versions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartView {
    pub namespace: String,
    pub catalog: String,
    pub chart: String,
    pub description: String,
    /// The version that `package` describes.
    pub version: String,
    pub versions: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageView>,
}

impl ChartView {
    /// Selects the newest version that matches `requested`, a version or a range. `None` means the newest version.
    pub fn new(catalog: &ExtensionCatalog, chart: Chart, requested: Option<&str>) -> Result<Self, Error> {
        let Chart { summary, versions } = chart;
        let selected = version::choose(
            requested.or(Some(&summary.newest.version)),
            versions.iter().map(|version| version.version.as_str()),
        );
        let selected = selected.map(str::to_owned).ok_or_else(|| Error::VersionNotFound {
            chart: summary.name.clone(),
            version: requested.unwrap_or_default().to_owned(),
            newest: summary.newest.version.clone(),
        })?;
        Ok(Self {
            namespace: catalog.namespace().unwrap_or_default(),
            catalog: catalog.name_any(),
            chart: summary.name,
            description: summary.description,
            version: selected,
            versions,
            package: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extensions_are_found_by_their_metadata() {
        let extension: Extension = serde_json::from_value(json!({
            "metadata": {"name": "lb", "namespace": "fleet"},
            "spec": {
                "displayName": "Load balancer", "description": "Services of our cloud.", "categories": ["networking"],
                "documentationURL": "https://example.com/lb", "versions": [],
            },
            "status": {"newest": "2.4.0", "appVersion": "2.4"},
        }))
        .unwrap();
        let view = ExtensionView::new(&extension);
        assert_eq!((view.newest.as_deref(), view.app_version.as_deref()), (Some("2.4.0"), Some("2.4")));
        for (terms, expected) in [
            (&[][..], true),
            (&["LB"], true),
            (&["load", "network"], true),
            (&["cloud"], true),
            (&["load", "storage"], false),
        ] {
            let terms: Vec<_> = terms.iter().map(|term| (*term).to_owned()).collect();
            assert_eq!(view.matches(&terms), expected, "{terms:?}");
        }
    }
}
