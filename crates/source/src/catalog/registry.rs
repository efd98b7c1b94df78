//! Reads the catalog of a registry: the charts that the selection names, and the listed repositories that match it.

use chandler_core::{catalog::Entry, digest::Digest};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    Catalog, CatalogRequest, Chart, ChartSummary,
    read::{failed, metadata},
    write,
};
use crate::{Packages, SourceError, index::ChartVersion};

/// Charts that are read concurrently.
const CONCURRENCY: usize = 8;
/// Each chart needs its own requests, so a public registry has to be limited by the filter.
const MAX_CHARTS: usize = 1000;
/// Only the newest versions of each chart are read, because each version needs its own requests.
const MAX_VERSIONS: usize = 50;

/// A repository that may be a chart.
struct Candidate {
    name: String,
    /// Whether the selection names it. Then it must exist and be a chart.
    is_named: bool,
}

impl Packages {
    pub(super) async fn read_registry(
        &self,
        request: CatalogRequest<'_>,
        stored: Option<Catalog>,
    ) -> Result<Catalog, SourceError> {
        let _slot = self.registries.slot(request.access).await?;
        let previous = stored.as_ref();
        let mut charts: Vec<Chart> = stream::iter(self.candidates(request).await?)
            .map(|candidate| async move { self.read_candidate(request, &candidate, previous).await })
            .buffer_unordered(CONCURRENCY)
            .try_filter_map(|chart| async { Ok(chart) })
            .try_collect()
            .await?;
        charts.sort_by(|one, other| one.summary.name.cmp(&other.summary.name));
        let digest = Digest::of(serde_json::to_vec(&charts).map_err(failed)?);
        match stored {
            Some(stored) if stored.digest() == digest.as_str() => Ok(stored),
            _ => {
                let metadata = metadata(request, digest.as_str(), std::collections::BTreeMap::new());
                let fill = move |writer: &mut write::Writer<'_>| {
                    charts.iter().try_for_each(|chart| writer.write(chart))
                };
                self.write_catalog(request, metadata, fill).await
            }
        }
    }

    async fn candidates(&self, request: CatalogRequest<'_>) -> Result<Vec<Candidate>, SourceError> {
        let CatalogRequest { url, access, selection, .. } = request;
        let named = selection.named().map(|name| Candidate { name: name.to_owned(), is_named: true });
        let mut candidates: Vec<Candidate> = named.collect();
        if selection.needs_listing() {
            let mut listed = self.registries.list_repositories(url, access).await?;
            listed.retain(|name| {
                selection.includes_chart(name) && candidates.iter().all(|candidate| candidate.name != *name)
            });
            candidates.extend(listed.into_iter().map(|name| Candidate { name, is_named: false }));
        }
        if candidates.len() > MAX_CHARTS {
            let reason = format!("{} charts match spec.filter, the limit is {MAX_CHARTS}", candidates.len());
            return Err(SourceError::InvalidIndex { url: url.to_owned(), reason });
        }
        Ok(candidates)
    }

    /// Returns `None` if the candidate is not a chart, or if no version belongs to the catalog.
    async fn read_candidate(
        &self,
        request: CatalogRequest<'_>,
        candidate: &Candidate,
        previous: Option<&Catalog>,
    ) -> Result<Option<Chart>, SourceError> {
        match self.read_chart(request, &candidate.name, previous).await {
            Err(error) if !candidate.is_named && is_not_a_chart(&error) => Ok(None),
            result => result,
        }
    }

    /// Reads a chart. Versions that are in the previous catalog are not requested again.
    async fn read_chart(
        &self,
        request: CatalogRequest<'_>,
        name: &str,
        previous: Option<&Catalog>,
    ) -> Result<Option<Chart>, SourceError> {
        let CatalogRequest { url, access, selection, .. } = request;
        let versions = self.registries.chart_versions(url, name, access).await?;
        let bare =
            versions.into_iter().map(|version| Ok(ChartVersion { version, ..ChartVersion::default() }));
        let Some(chart) = write::chart(name, bare, selection).map_err(failed)? else { return Ok(None) };
        let previous = previous.and_then(|previous| previous.chart(name).ok().flatten());
        let mut collector = VersionCollector { previous, summary: None, versions: Vec::new() };
        for Entry { version, .. } in chart.versions.into_iter().take(MAX_VERSIONS) {
            if collector.reuse(&version) {
                continue;
            }
            match self.registries.chart_metadata(url, name, &version, access).await {
                // Packages are fetched by tag, even if the chart contains another version.
                Ok(metadata) => collector.add(name, ChartVersion { version, ..metadata.truncated() }),
                Err(error) if collector.summary.is_some() && is_not_a_chart(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let VersionCollector { summary, versions, .. } = collector;
        Ok(summary.map(|summary| Chart { summary, versions }))
    }
}

/// Collects the versions of a chart, newest first.
struct VersionCollector {
    previous: Option<Chart>,
    summary: Option<ChartSummary>,
    versions: Vec<Entry>,
}

impl VersionCollector {
    /// Adds a version from the previous catalog. Returns whether it was there.
    fn reuse(&mut self, version: &str) -> bool {
        let Some(previous) = &self.previous else { return false };
        let entry = previous.versions.iter().find(|entry| entry.version == version);
        // The summary is that of the newest version, and the previous catalog only has one of its own newest version.
        let entry = entry.filter(|_| self.summary.is_some() || previous.summary.newest.version == version);
        let Some(entry) = entry else { return false };
        self.summary.get_or_insert_with(|| previous.summary.clone());
        self.versions.push(entry.clone());
        true
    }

    fn add(&mut self, name: &str, version: ChartVersion) {
        self.versions.push(write::entry(&version));
        self.summary.get_or_insert_with(|| write::summary(name, version));
    }
}

/// Registries also contain images and other artifacts, and may list deleted repositories.
fn is_not_a_chart(error: &SourceError) -> bool {
    matches!(error, SourceError::NotAChart { .. } | SourceError::Status { status: 404, .. })
}
