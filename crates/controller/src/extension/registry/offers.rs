//! What an Extension publishes, as its object and its sources tell.

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

use crate::release::NamedCatalogs;

/// A chart of a source; the version is left out.
type Chart = PackageSource;
type Offered = HashMap<Chart, Vec<PublishedVersion>>;

/// Where to find out what is offered.
pub struct Offers {
    pub packages: Arc<Packages>,
    pub catalogs: NamedCatalogs,
}

/// What an Extension publishes.
pub struct Found {
    pub published: Published,
    /// Whether sources had to be asked, whose answer may be another one later.
    pub asked: bool,
}

impl Offers {
    /// Finds out what an Extension publishes.
    pub async fn published(&self, extension: &Extension) -> Result<Found, Failure> {
        let own = extension.namespace().unwrap_or_default();
        let offered = self.offered(&own, &extension.spec).await?;
        Ok(Found { published: with(&extension.spec, &offered), asked: !offered.is_empty() })
    }

    /// What the sources offer that have to be asked: those of versions that state no Kubernetes of their own, and the one
    /// whose tags are followed.
    async fn offered(&self, own: &str, spec: &ExtensionSpec) -> Result<Offered, Failure> {
        let unstated = spec.versions.iter().filter(|version| version.kubernetes.is_none());
        let charts: HashSet<_> =
            unstated.map(|version| chart(&version.source)).chain(followed_chart(spec)).collect();
        let mut offered = HashMap::new();
        for chart in charts {
            let versions = self.versions(own, &chart).await?;
            offered.insert(chart, versions);
        }
        Ok(offered)
    }

    async fn versions(&self, own: &str, chart: &Chart) -> Result<Vec<PublishedVersion>, Failure> {
        let (repository, access) = self.catalogs.repository(own, chart).await?;
        Ok(self.packages.versions(&repository, &chart.chart, &access).await?)
    }
}

fn with(spec: &ExtensionSpec, offered: &Offered) -> Published {
    let stated = |version: &ExtensionVersion| {
        let wanted = version.source.version.as_ref().unwrap_or(&version.version);
        let listed = offered.get(&chart(&version.source))?.iter().find(|listed| listed.version == *wanted);
        listed.and_then(|listed| listed.kubernetes.clone())
    };
    let followed = followed_chart(spec).and_then(|chart| offered.get(&chart));
    let tags = followed.into_iter().flatten().map(|listed| listed.version.as_str());
    published(spec, stated, tags)
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
