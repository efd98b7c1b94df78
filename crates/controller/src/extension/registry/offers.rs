//! The versions that an Extension publishes, from its spec and its sources.

use std::{
    collections::{HashMap, HashSet},
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
    queue::download,
    release::NamedCatalogs,
    sources::{Folder, SourcePackages},
};

/// A chart of a source, without a version, or a folder of a Source.
type Chart = PackageSource;
type Offered = HashMap<Chart, Vec<PublishedVersion>>;

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
}

impl Offers {
    /// Returns the versions that an Extension publishes.
    pub async fn published(&self, extension: &Extension) -> Result<Offer, Failure> {
        let own = extension.namespace().unwrap_or_default();
        let offered = self.offered(&own, &extension.spec).await?;
        let tags = self.followed_tags(&own, &extension.spec).await?;
        let polled = !offered.is_empty() || tags.is_some();
        Ok(Offer { published: with_offered(&extension.spec, &offered, &tags.unwrap_or_default()), polled })
    }

    /// Reads the sources of versions without a `kubernetes` range of their own, and the source whose tags are followed.
    async fn offered(&self, own: &str, spec: &ExtensionSpec) -> Result<Offered, Failure> {
        let without_range = spec.versions.iter().filter(|version| version.kubernetes.is_none());
        let charts: HashSet<_> =
            without_range.map(|version| chart(&version.source)).chain(followed_chart(spec)).collect();
        let mut offered = HashMap::new();
        for chart in charts {
            let versions = self.versions(own, &chart).await?;
            offered.insert(chart, versions);
        }
        Ok(offered)
    }

    async fn versions(&self, own: &str, chart: &Chart) -> Result<Vec<PublishedVersion>, Failure> {
        if chart.source_ref.is_some() {
            return Ok(vec![self.folder(own, chart).await?]);
        }
        if let Some(versions) = self.folder_versions(own, chart).await? {
            return Ok(versions);
        }
        let (repository, access) = self.catalogs.repository(own, chart).await?;
        Ok(download(own, self.packages.versions(&repository, &chart.chart, &access)).await?)
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

fn with_offered(spec: &ExtensionSpec, offered: &Offered, tags: &[String]) -> Published {
    let package_range = |version: &ExtensionVersion| {
        let expected = version.source.version.as_ref().unwrap_or(&version.version);
        let is_folder = version.source.source_ref.is_some();
        let is_it = |listed: &&PublishedVersion| is_folder || listed.version == *expected;
        let listed = offered.get(&chart(&version.source))?.iter().find(is_it);
        listed.and_then(|listed| listed.kubernetes.clone())
    };
    let followed = followed_chart(spec).and_then(|chart| offered.get(&chart));
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
