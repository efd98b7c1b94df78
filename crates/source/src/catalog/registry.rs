//! Reads the catalog of a registry: the charts that the selection names, or those of its list that fit.

use chandler_core::{catalog::Entry, digest::Digest};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    Catalog, CatalogRequest, Chart, ChartSummary,
    read::{about, failed},
    write,
};
use crate::{Packages, SourceError, index::Published};

/// Charts that are asked for at the same time.
const AT_ONCE: usize = 8;
/// Each costs requests of its own, so a registry for everyone has to be narrowed by the filter.
const MOST_CHARTS: usize = 1000;
/// Of each chart, the newest. Every version is asked what it is for, once.
const MOST_VERSIONS: usize = 50;

/// A chart that may be there.
struct Supposed {
    name: String,
    /// Whether the selection names it: then it has to be there.
    is_named: bool,
}

impl Packages {
    pub(super) async fn read_registry(
        &self,
        request: CatalogRequest<'_>,
        kept: Option<Catalog>,
    ) -> Result<Catalog, SourceError> {
        let before = kept.as_ref();
        let mut charts: Vec<Chart> = stream::iter(self.supposed(request).await?)
            .map(|chart| async move { self.chart_of_registry(request, &chart, before).await })
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|chart| async { Ok(chart) })
            .try_collect()
            .await?;
        charts.sort_by(|one, other| one.summary.name.cmp(&other.summary.name));
        let digest = Digest::of(serde_json::to_vec(&charts).map_err(failed)?);
        match kept {
            Some(kept) if kept.digest() == digest.as_str() => Ok(kept),
            _ => {
                let about = about(request, digest.as_str(), std::collections::BTreeMap::new());
                let fill = move |writer: &mut write::Writer<'_>| {
                    charts.iter().try_for_each(|chart| writer.write(chart))
                };
                self.keep(request, about, fill).await
            }
        }
    }

    async fn supposed(&self, request: CatalogRequest<'_>) -> Result<Vec<Supposed>, SourceError> {
        let CatalogRequest { url, access, selection, .. } = request;
        let named = selection.named().map(|name| Supposed { name: name.to_owned(), is_named: true });
        let mut supposed: Vec<Supposed> = named.collect();
        if selection.needs_listing() {
            let mut listed = self.registries.listed(url, access).await?;
            listed.retain(|name| {
                selection.includes_chart(name) && supposed.iter().all(|known| known.name != *name)
            });
            supposed.extend(listed.into_iter().map(|name| Supposed { name, is_named: false }));
        }
        if supposed.len() > MOST_CHARTS {
            let reason = format!("{} charts fit spec.filter, {MOST_CHARTS} at most are read", supposed.len());
            return Err(SourceError::BadIndex { url: url.to_owned(), reason });
        }
        Ok(supposed)
    }

    /// None: it is no chart, or has no version that belongs to the catalog.
    async fn chart_of_registry(
        &self,
        request: CatalogRequest<'_>,
        supposed: &Supposed,
        kept: Option<&Catalog>,
    ) -> Result<Option<Chart>, SourceError> {
        let found = self.asked_chart(request, &supposed.name, kept).await;
        match found {
            Err(error) if !supposed.is_named && is_no_chart(&error) => Ok(None),
            other => other,
        }
    }

    /// Only versions that were not there before are asked about themselves.
    async fn asked_chart(
        &self,
        request: CatalogRequest<'_>,
        name: &str,
        kept: Option<&Catalog>,
    ) -> Result<Option<Chart>, SourceError> {
        let CatalogRequest { url, access, selection, .. } = request;
        let tags = self.registries.published(url, name, access).await?;
        let bare = tags.into_iter().map(|version| Ok(Published { version, ..Published::default() }));
        let Some(chart) = write::chart(name, bare, selection).map_err(failed)? else { return Ok(None) };
        let before = kept.and_then(|kept| kept.chart(name).ok().flatten());
        let mut told = Told { before, summary: None, versions: Vec::new() };
        for Entry { version, .. } in chart.versions.into_iter().take(MOST_VERSIONS) {
            if told.knew(&version) {
                continue;
            }
            match self.registries.described(url, name, &version, access).await {
                // The tag is the version that can be fetched, whatever the chart says of itself.
                Ok(described) => told.add(name, Published { version, ..described.shortened() }),
                Err(error) if told.summary.is_some() && is_no_chart(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let Told { summary, versions, .. } = told;
        Ok(summary.map(|summary| Chart { summary, versions }))
    }
}

/// What the versions of a chart have told so far, the newest first.
struct Told {
    before: Option<Chart>,
    summary: Option<ChartSummary>,
    versions: Vec<Entry>,
}

impl Told {
    /// Whether a version told already, when the catalog was read before. If so, that counts.
    fn knew(&mut self, version: &str) -> bool {
        let Some(before) = &self.before else { return false };
        let known = before.versions.iter().find(|known| known.version == version);
        // What the newest tells stands for the chart, and is known of that one alone.
        let known = known.filter(|_| self.summary.is_some() || before.summary.newest.version == version);
        let Some(known) = known else { return false };
        self.summary.get_or_insert_with(|| before.summary.clone());
        self.versions.push(known.clone());
        true
    }

    fn add(&mut self, name: &str, published: Published) {
        self.versions.push(write::version(&published));
        self.summary.get_or_insert_with(|| write::summary(name, published));
    }
}

/// Registries hold images and much else, and list what has been deleted.
fn is_no_chart(error: &SourceError) -> bool {
    matches!(error, SourceError::NotAPackage { .. } | SourceError::Status { status: 404, .. })
}
