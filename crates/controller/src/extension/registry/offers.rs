//! The versions that an Extension publishes, from its spec and its sources.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use chandler_api::extensions::{Extension, ExtensionSpec, ExtensionVersion, PackageSource};
use chandler_core::{
    catalog::Entry,
    failure::{Category, Failure},
    resolution::{Published, published},
};
use chandler_source::{Packages, PublishedVersion};
use kube::ResourceExt as _;

use crate::{
    queue::outside_of_limit,
    release::NamedCatalogs,
    sources::{Folder, SourcePackages},
};

/// A chart of a source, without a version, or a folder of a Source.
type Chart = PackageSource;
/// The versions of charts, or why a chart has none. Such a failure concerns the versions of that chart only.
type Offered = HashMap<Chart, Result<Vec<PublishedVersion>, Failure>>;

/// The sources of Extensions.
pub struct Offers {
    pub packages: Arc<Packages>,
    pub catalogs: NamedCatalogs,
    /// `None` means that no Sources are read.
    pub source_packages: Option<SourcePackages>,
}

/// The versions that an Extension publishes.
pub struct Offer {
    pub published: Published,
    /// Whether sources were read, so that the result can change without an event.
    pub polled: bool,
    /// The category of the failure of a listed version that its source does not offer.
    pub failed: Option<Category>,
}

impl Offers {
    /// Returns the versions that an Extension publishes.
    pub async fn published(&self, extension: &Extension) -> Result<Offer, Failure> {
        let (own, spec) = (extension.namespace().unwrap_or_default(), &extension.spec);
        let offered = self.offered(&own, spec).await?;
        let tags = self.followed_tags(&own, spec).await?;
        let refused = self.refused(&own, spec, &offered).await;
        let mut listed = spec.versions.iter().filter_map(|version| refused.get(&version.version));
        let failed = listed.next().map(|failure| failure.category);
        let polled = !offered.is_empty() || tags.is_some();
        let published = with_offered(spec, &offered, &tags.unwrap_or_default()).without(&refused);
        Ok(Offer { published, polled, failed })
    }

    /// Reads the sources of versions without a `kubernetes` range of their own, and the source whose tags are followed.
    async fn offered(&self, own: &str, spec: &ExtensionSpec) -> Result<Offered, Failure> {
        let without_range = spec.versions.iter().filter(|version| version.kubernetes.is_none());
        let charts: HashSet<_> =
            without_range.map(|version| chart(&version.source)).chain(followed_chart(spec)).collect();
        let mut offered = HashMap::new();
        for chart in charts {
            let versions = match self.catalogs.excluded_chart(own, &chart).await? {
                Some(failure) => Err(failure),
                // A folder may be missing at one revision of its Source only: what was read before stays.
                None if chart.source_ref.is_some() => Ok(self.versions(own, &chart).await?),
                None => definite(self.versions(own, &chart).await)?,
            };
            offered.insert(chart, versions);
        }
        match followed_chart(spec).and_then(|chart| offered.get(&chart)) {
            // Which versions it would publish is unknown.
            Some(Err(failure)) => Err(failure.clone()),
            _ => Ok(offered),
        }
    }

    /// Returns why versions are not offered, by version: their chart does not exist, or the filter of their catalog excludes them.
    async fn refused(&self, own: &str, spec: &ExtensionSpec, offered: &Offered) -> BTreeMap<String, Failure> {
        let mut refused = BTreeMap::new();
        if let Some(followed) = followed_chart(spec)
            && let Some(Ok(versions)) = offered.get(&followed)
        {
            let versions: Vec<_> = versions.iter().map(|listed| listed.version.as_str()).collect();
            refused = self.catalogs.excluded_versions(own, &followed, &versions).await.unwrap_or_default();
        }
        for version in &spec.versions {
            let failure = if let Some(Err(failure)) = offered.get(&chart(&version.source)) {
                Some(failure.clone())
            } else {
                let expected = [package_version(version)];
                let excluded = self.catalogs.excluded_versions(own, &version.source, &expected).await;
                // Without the catalog, nothing is known about its filter.
                excluded.unwrap_or_default().into_values().next()
            };
            match failure {
                Some(failure) => refused.insert(version.version.clone(), failure),
                None => refused.remove(&version.version),
            };
        }
        refused
    }

    /// Returns all versions of a chart, also those that the filter of its catalog excludes: they may be running, and have a range.
    async fn versions(&self, own: &str, chart: &Chart) -> Result<Vec<PublishedVersion>, Failure> {
        self.catalogs.check_allowed(own, chart).await?;
        if chart.source_ref.is_some() {
            return Ok(vec![self.folder(own, chart).await?]);
        }
        if let Some(versions) = self.folder_versions(own, chart).await? {
            return Ok(versions);
        }
        let (repository, access) = self.catalogs.repository(own, chart).await?;
        Ok(outside_of_limit(self.packages.versions(&repository, &chart.chart, &access)).await?)
    }

    /// Returns the versions of a chart of a catalog that is a folder of a Source. `None` if the catalog is not.
    async fn folder_versions(
        &self,
        own: &str,
        chart: &Chart,
    ) -> Result<Option<Vec<PublishedVersion>>, Failure> {
        let found = self.catalogs.folder_entries(own, chart).await;
        if let (Err(_), None) = (&found, &self.source_packages) {
            self.sources()?;
        }
        let published =
            |entry: Entry| PublishedVersion { version: entry.version, kubernetes: entry.kube_version };
        Ok(found?.map(|(_, entries)| entries.into_iter().map(published).collect()))
    }

    /// Reads the package in a folder of a Source. Its own version is not used.
    async fn folder(&self, own: &str, source: &PackageSource) -> Result<PublishedVersion, Failure> {
        let kubernetes = self.sources()?.kubernetes_range(Folder { source, namespace: own }).await?;
        Ok(PublishedVersion { version: String::new(), kubernetes })
    }

    /// Reads the tags of the Source that is followed. `None` means that no Source is.
    async fn followed_tags(&self, own: &str, spec: &ExtensionSpec) -> Result<Option<Vec<String>>, Failure> {
        let followed = spec.follow_kubernetes.as_ref();
        let Some(source) = followed.and_then(|follow| follow.source_ref.as_ref()) else { return Ok(None) };
        self.sources()?.sources().tags(source, own).await.map(Some)
    }

    fn sources(&self) -> Result<&SourcePackages, Failure> {
        self.source_packages.as_ref().ok_or_else(|| {
            let message =
                "only the manager reads Sources; set `kubernetes` of the versions whose packages are in one";
            Failure::new(Category::SourceUnavailable, message)
        })
    }
}

/// Keeps the failure of a chart that does not exist. Other failures mean that nothing is known.
fn definite(
    read: Result<Vec<PublishedVersion>, Failure>,
) -> Result<Result<Vec<PublishedVersion>, Failure>, Failure> {
    match read {
        Err(failure) if failure.category != Category::PackageNotFound => Err(failure),
        read => Ok(read),
    }
}

/// Returns the version of the package of a version.
fn package_version(version: &ExtensionVersion) -> &str {
    version.source.version.as_ref().unwrap_or(&version.version)
}

fn with_offered(spec: &ExtensionSpec, offered: &Offered, tags: &[String]) -> Published {
    let package_range = |version: &ExtensionVersion| {
        let expected = package_version(version);
        let is_folder = version.source.source_ref.is_some();
        let is_it = |listed: &&PublishedVersion| is_folder || listed.version == expected;
        let listed = offered.get(&chart(&version.source))?.as_ref().ok()?.iter().find(is_it);
        listed.and_then(|listed| listed.kubernetes.clone())
    };
    let followed = followed_chart(spec).and_then(|chart| offered.get(&chart)?.as_ref().ok());
    let listed = followed.into_iter().flatten().map(|listed| listed.version.as_str());
    published(spec, package_range, listed.chain(tags.iter().map(String::as_str)))
}

/// Returns the key of what is read of a source. The version of a folder is a tag, which has its own content.
fn chart(source: &PackageSource) -> Chart {
    let version = source.version.clone().filter(|_| source.source_ref.is_some());
    PackageSource { version, ..source.clone() }
}

fn followed_chart(spec: &ExtensionSpec) -> Option<Chart> {
    let follow = spec.follow_kubernetes.clone().filter(|follow| follow.source_ref.is_none())?;
    Some(PackageSource {
        repository: follow.repository,
        catalog: follow.catalog,
        chart: follow.chart,
        ..PackageSource::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(category: Category) -> Failure {
        Failure::new(category, "it does not work")
    }

    fn spec() -> ExtensionSpec {
        let version = |version: &str, chart: &str| json!({"version": version, "source": {"catalog": {"name": "charts"}, "chart": chart}});
        let versions = [version("1.0.0", "web-legacy"), version("1.1.0", "web"), version("2.0.0", "web")];
        serde_json::from_value(json!({"versions": versions})).unwrap()
    }

    #[test]
    fn only_a_chart_that_does_not_exist_is_a_failure_of_its_versions_alone() {
        let rows = [
            (Category::PackageNotFound, true),
            (Category::InvalidSpec, false),
            (Category::SourceUnavailable, false),
            (Category::Timeout, false),
        ];
        for (category, is_definite) in rows {
            assert_eq!(definite(Err(failure(category))).is_ok(), is_definite, "{category:?}");
        }
        assert_eq!(definite(Ok(Vec::new())), Ok(Ok(Vec::new())));
    }

    #[test]
    fn a_version_that_is_not_offered_keeps_its_range_and_leaves_the_others_published() {
        let spec = spec();
        let listed = |version: &str, kubernetes: &str| PublishedVersion {
            version: version.to_owned(),
            kubernetes: Some(kubernetes.to_owned()),
        };
        let offered = Offered::from([
            (chart(&spec.versions[0].source), Err(failure(Category::PackageNotFound))),
            (chart(&spec.versions[1].source), Ok(vec![listed("1.1.0", ">=1.30"), listed("2.0.0", "<1.34")])),
        ]);
        let refused = ["1.0.0", "2.0.0"].map(|version| (version.to_owned(), failure(Category::InvalidSpec)));
        let published = with_offered(&spec, &offered, &[]).without(&BTreeMap::from(refused));
        let found: Vec<_> = published
            .versions
            .iter()
            .map(|known| {
                let kubernetes = known.kubernetes.as_ref().map(ToString::to_string);
                (known.name.text.as_str(), kubernetes, known.not_offered.is_some())
            })
            .collect();
        let range = |range: &str| Some(range.to_owned());
        assert_eq!(
            found,
            [("1.0.0", None, true), ("1.1.0", range(">=1.30"), false), ("2.0.0", range("<1.34"), true)]
        );
        assert!(!published.is_unread);
    }
}
