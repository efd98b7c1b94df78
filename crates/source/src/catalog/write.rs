//! Writes the file of a catalog, chart by chart.

use std::{
    cmp::Reverse,
    io::{self, BufWriter, Write as _},
};

use chandler_core::{
    catalog::{Entry, Selection},
    resolution::parse_version,
};
use tempfile::NamedTempFile;

use super::{CatalogMetadata, Chart, ChartSummary};
use crate::index::ChartVersion;

pub(super) struct Writer<'a> {
    file: BufWriter<NamedTempFile>,
    selection: &'a Selection,
    packages: u32,
}

impl<'a> Writer<'a> {
    pub fn new(file: NamedTempFile, selection: &'a Selection) -> Self {
        Self { file: BufWriter::new(file), selection, packages: 0 }
    }

    /// Adds a chart if at least one of its versions belongs to the catalog.
    pub fn add(
        &mut self,
        name: &str,
        versions: impl Iterator<Item = io::Result<ChartVersion>>,
    ) -> io::Result<()> {
        if !self.selection.includes_chart(name) {
            return Ok(());
        }
        if let Some(chart) = chart(name, versions, self.selection)? {
            self.write(&chart)?;
        }
        Ok(())
    }

    pub fn write(&mut self, chart: &Chart) -> io::Result<()> {
        self.packages += 1;
        serde_json::to_writer(&mut self.file, &chart.summary)?;
        self.file.write_all(b"\t")?;
        self.line(&chart.versions)
    }

    /// Writes the metadata and returns the complete file.
    pub fn finish(mut self, metadata: CatalogMetadata) -> io::Result<NamedTempFile> {
        let metadata = CatalogMetadata { packages: self.packages, ..metadata };
        self.line(&metadata)?;
        Ok(self.file.into_inner()?)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, value)?;
        self.file.write_all(b"\n")
    }
}

/// Returns a chart with the versions that belong to the catalog, or `None` if there are none.
pub(super) fn chart(
    name: &str,
    versions: impl Iterator<Item = io::Result<ChartVersion>>,
    selection: &Selection,
) -> io::Result<Option<Chart>> {
    let mut entries = Vec::new();
    let mut newest: Option<(semver::Version, ChartVersion)> = None;
    for version in versions {
        let version = version?;
        let Some(number) =
            parse_version(&version.version).filter(|_| selection.includes_version(&version.version))
        else {
            continue;
        };
        entries.push((number.clone(), entry(&version)));
        if newest.as_ref().is_none_or(|(newest, _)| number > *newest) {
            newest = Some((number, version));
        }
    }
    entries.sort_by(|(one, _), (other, _)| Reverse(one).cmp(&Reverse(other)));
    Ok(newest.map(|(_, newest)| Chart {
        summary: summary(name, newest),
        versions: entries.into_iter().map(|(_, entry)| entry).collect(),
    }))
}

pub(super) fn summary(name: &str, newest: ChartVersion) -> ChartSummary {
    ChartSummary {
        name: name.to_owned(),
        newest: entry(&newest),
        description: newest.description.unwrap_or_default(),
        keywords: newest.keywords.into_iter().flatten().flatten().collect(),
    }
}

pub(super) fn entry(version: &ChartVersion) -> Entry {
    Entry {
        version: version.version.clone(),
        app_version: version.app_version.clone().filter(|text| !text.is_empty()),
        kube_version: version.kube_version.clone().filter(|text| !text.is_empty()),
        deprecated: version.deprecated.unwrap_or_default(),
        annotations: version.annotations.clone(),
        folder: None,
    }
}
