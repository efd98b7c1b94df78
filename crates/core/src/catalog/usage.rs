//! Whether the filter of a catalog allows the use of a chart. A tenant names charts itself, and they are downloaded with the
//! credentials of the catalog, so the filter counts wherever a chart is located, not only in lists.

use std::collections::BTreeMap;

use chandler_api::extensions::{CatalogFilter, ExtensionCatalog};
use kube_core::ResourceExt as _;
use semver::Version;

use super::Selection;
use crate::{
    failure::{Category, Failure},
    resolution::parse_version,
    version,
};

/// Number of patterns that one message names.
const NAMED: usize = 5;

/// The filter of a catalog, for one chart.
#[derive(Debug)]
pub struct Usage<'a> {
    catalog: &'a ExtensionCatalog,
    chart: &'a str,
    selection: Selection,
}

impl<'a> Usage<'a> {
    /// Fails if the filter of the catalog does not include the chart.
    pub fn new(catalog: &'a ExtensionCatalog, chart: &'a str) -> Result<Self, Failure> {
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let usage = Self { catalog, chart, selection };
        // A registry would ignore such parts, and find a chart with another name.
        let is_name = !chart.split('/').any(|part| part.chars().all(|c| c == '.'));
        if is_name && usage.selection.includes_chart(chart) { Ok(usage) } else { Err(usage.refused("chart")) }
    }

    /// Returns whether the catalog offers some versions only. Without a range, all that a user names are allowed, also
    /// pre-releases, which are not listed.
    pub fn limits_versions(&self) -> bool {
        self.filter().is_some_and(|filter| filter.versions.is_some())
    }

    /// Fails if the filter does not include a version.
    pub fn check_version(&self, version: &str) -> Result<(), Failure> {
        if !self.limits_versions() || self.selection.includes_version(version) {
            return Ok(());
        }
        Err(self.refused(&format!("version {version} of chart")))
    }

    /// Fails if the filter does not include a version that is requested exactly. Nothing is known about a range.
    pub fn check_requested(&self, version: Option<&str>) -> Result<(), Failure> {
        let exact = version.filter(|version| is_exact(version));
        exact.map_or(Ok(()), |version| self.check_version(version))
    }

    /// Returns whether the published versions are needed to choose one.
    pub fn needs_versions(&self, requested: Option<&str>) -> bool {
        self.limits_versions() && !requested.is_some_and(is_exact)
    }

    /// Returns the version for a request: that of the published ones that the filter includes.
    pub fn choose<'v>(
        &self,
        requested: Option<&str>,
        published: impl IntoIterator<Item = &'v str>,
    ) -> Result<&'v str, Failure> {
        let included = published.into_iter().filter(|version| self.selection.includes_version(version));
        let requested_text = requested.map_or_else(String::new, |requested| format!("{requested} "));
        version::choose(requested, included)
            .ok_or_else(|| self.refused(&format!("a version {requested_text}of chart")))
    }

    fn filter(&self) -> Option<&CatalogFilter> {
        self.catalog.spec.filter.as_ref()
    }

    fn refused(&self, what: &str) -> Failure {
        let (namespace, name) = (self.catalog.namespace().unwrap_or_default(), self.catalog.name_any());
        let filter = self.filter().map(text).filter(|text| !text.is_empty());
        let filter = filter.map_or_else(String::new, |text| format!(": its filter is {text}"));
        let message =
            format!("ExtensionCatalog {namespace}/{name} does not offer {what} {:?}{filter}", self.chart);
        Failure::new(Category::InvalidSpec, message)
    }
}

/// Returns why the filter of a catalog excludes versions of a chart, by version. Nothing is known about a range.
pub fn excluded_versions<'v>(
    catalog: &ExtensionCatalog,
    chart: &str,
    versions: impl IntoIterator<Item = &'v str>,
) -> BTreeMap<String, Failure> {
    let usage = Usage::new(catalog, chart);
    let check = |version: &str| match &usage {
        Ok(usage) => parse_version(version).and_then(|_| usage.check_version(version).err()),
        Err(failure) => Some(failure.clone()),
    };
    versions.into_iter().filter_map(|version| Some((version.to_owned(), check(version)?))).collect()
}

/// Returns whether a requested version is one version and not a range.
fn is_exact(version: &str) -> bool {
    Version::parse(version.strip_prefix('v').unwrap_or(version)).is_ok()
}

fn text(filter: &CatalogFilter) -> String {
    let names = |field: &str, names: &[String]| {
        let named = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("{field}: {named}{more}"))
    };
    let CatalogFilter { include, exclude, versions } = filter;
    let versions = versions.as_ref().map(|versions| format!("versions: {versions}"));
    let parts = [names("include", include), names("exclude", exclude), versions];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn catalog(filter: &Value) -> ExtensionCatalog {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": "platform"},
            "spec": {"url": "https://charts.example", "filter": filter},
        }))
        .unwrap()
    }

    #[test]
    fn charts_and_exact_versions_outside_of_the_filter_are_refused() {
        let some = json!({"include": ["web*"], "exclude": ["web-private"], "versions": "1.x"});
        let rows = [
            (&some, "web", Some("1.2.0"), None),
            (&some, "web", Some("v1.2.0"), None),
            (&some, "web", None, None),
            (&some, "web", Some("2.x"), None),
            (&some, "web", Some("2.0.0"), Some("version 2.0.0 of chart \"web\"")),
            (&some, "web", Some("1.3.0-rc.1"), Some("version 1.3.0-rc.1 of chart \"web\"")),
            (&some, "web-private", Some("1.2.0"), Some("chart \"web-private\"")),
            (&some, "web-private/", Some("1.2.0"), Some("chart \"web-private/\"")),
            (&some, "web/../web-private", Some("1.2.0"), Some("chart \"web/../web-private\"")),
            (&some, "db", Some("1.2.0"), Some("chart \"db\"")),
            (&json!(null), "db", Some("2.0.0-rc.1"), None),
            (&json!({"exclude": ["web"]}), "db", Some("2.0.0-rc.1"), None),
        ];
        for (filter, chart, version, refused) in rows {
            let catalog = catalog(filter);
            let result = Usage::new(&catalog, chart).and_then(|usage| usage.check_requested(version));
            let expected = refused.map(|refused| {
                format!(
                    "ExtensionCatalog platform/charts does not offer {refused}: its filter is include: web*; exclude: \
                     web-private; versions: 1.x"
                )
            });
            assert_eq!(result.err().map(|failure| failure.message), expected, "{chart} {version:?}");
        }
    }

    #[test]
    fn a_range_is_chosen_from_what_the_filter_includes() {
        let catalog = catalog(&json!({"versions": "1.x"}));
        let usage = Usage::new(&catalog, "web").unwrap();
        let published = ["1.0.0", "2.0.0", "1.1.0", "sha256:abc"];
        let rows = [
            (None, Some("1.1.0")),
            (Some(">=1.0.0"), Some("1.1.0")),
            (Some("~1.0"), Some("1.0.0")),
            (Some("2.x"), None),
            (Some("sha256:abc"), None),
        ];
        for (requested, expected) in rows {
            assert!(usage.needs_versions(requested));
            assert_eq!(usage.choose(requested, published).ok(), expected, "{requested:?}");
        }
        assert!(!usage.needs_versions(Some("1.0.0")));
        assert!(usage.check_version("2.0.0").is_err() && usage.check_version("1.0.0").is_ok());
    }

    #[test]
    fn versions_outside_of_the_filter_are_excluded_one_by_one() {
        let versions = ["1.0.0", "2.0.0", "1.1.0", ">=2"];
        let rows = [
            (json!(null), "web", vec![]),
            (json!({"versions": "1.x"}), "web", vec!["2.0.0"]),
            (json!({"include": ["web"]}), "web", vec![]),
            (json!({"include": ["web"]}), "web-legacy", vec!["1.0.0", "1.1.0", "2.0.0", ">=2"]),
        ];
        for (filter, chart, expected) in rows {
            let excluded = excluded_versions(&catalog(&filter), chart, versions);
            assert_eq!(excluded.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{filter} {chart}");
            assert!(excluded.values().all(|failure| failure.message.contains("does not offer")));
        }
    }
}
