//! The versions that an Extension publishes, from its spec and its sources.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chandler_api::extensions::{Extension, ExtensionSpec, ExtensionVersion, PackageSource};
use chandler_core::{
    failure::Failure,
    resolution::{Published, published},
};
use chandler_source::{Packages, PublishedVersion};
use kube::ResourceExt as _;

use crate::{queue::outside_of_limit, release::NamedCatalogs};

/// A chart of a source, without a version.
type Chart = PackageSource;
type Offered = HashMap<Chart, Vec<PublishedVersion>>;

/// The sources of Extensions.
pub struct Offers {
    pub packages: Arc<Packages>,
    pub catalogs: NamedCatalogs,
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
        Ok(Offer { published: with_offered(&extension.spec, &offered), polled: !offered.is_empty() })
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
        let (repository, access) = self.catalogs.repository(own, chart).await?;
        Ok(outside_of_limit(self.packages.versions(&repository, &chart.chart, &access)).await?)
    }
}

fn with_offered(spec: &ExtensionSpec, offered: &Offered) -> Published {
    let package_range = |version: &ExtensionVersion| {
        let expected = version.source.version.as_ref().unwrap_or(&version.version);
        let listed = offered.get(&chart(&version.source))?.iter().find(|listed| listed.version == *expected);
        listed.and_then(|listed| listed.kubernetes.clone())
    };
    let followed = followed_chart(spec).and_then(|chart| offered.get(&chart));
    let tags = followed.into_iter().flatten().map(|listed| listed.version.as_str());
    published(spec, package_range, tags)
}

fn chart(source: &PackageSource) -> Chart {
    PackageSource { version: None, ..source.clone() }
}

fn followed_chart(spec: &ExtensionSpec) -> Option<Chart> {
    let follow = spec.follow_kubernetes.clone()?;
    Some(PackageSource {
        repository: follow.repository,
        catalog: follow.catalog,
        chart: follow.chart,
        version: None,
    })
}
