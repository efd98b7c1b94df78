//! Writes a catalog's file, chart by chart.

use std::{
    cmp::Reverse,
    io::{self, BufWriter, Write as _},
};

use chandler_core::{
    catalog::{Entry, Selection},
    resolution::parse_version,
};
use tempfile::NamedTempFile;

use super::{About, Chart, ChartSummary};
use crate::index::Published;

pub(super) struct Writer<'a> {
    file: BufWriter<NamedTempFile>,
    selection: &'a Selection,
    packages: u32,
}

impl<'a> Writer<'a> {
    pub fn new(file: NamedTempFile, selection: &'a Selection) -> Self {
        Self { file: BufWriter::new(file), selection, packages: 0 }
    }

    /// Adds a chart, unless none of its versions belongs to the catalog.
    pub fn add(
        &mut self,
        name: &str,
        published: impl Iterator<Item = io::Result<Published>>,
    ) -> io::Result<()> {
        if !self.selection.includes_chart(name) {
            return Ok(());
        }
        if let Some(chart) = chart(name, published, self.selection)? {
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

    /// The complete file.
    pub fn finish(mut self, about: About) -> io::Result<NamedTempFile> {
        let about = About { packages: self.packages, ..about };
        self.line(&about)?;
        Ok(self.file.into_inner()?)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, value)?;
        self.file.write_all(b"\n")
    }
}

/// What a chart's newest version tells, and all its versions. None: none of them belongs to the catalog.
pub(super) fn chart(
    name: &str,
    published: impl Iterator<Item = io::Result<Published>>,
    selection: &Selection,
) -> io::Result<Option<Chart>> {
    let mut versions = Vec::new();
    let mut newest: Option<(semver::Version, Published)> = None;
    for one in published {
        let one = one?;
        let Some(number) = parse_version(&one.version).filter(|_| selection.includes_version(&one.version))
        else {
            continue;
        };
        versions.push((number.clone(), version(&one)));
        if newest.as_ref().is_none_or(|(newest, _)| number > *newest) {
            newest = Some((number, one));
        }
    }
    versions.sort_by(|(one, _), (other, _)| Reverse(one).cmp(&Reverse(other)));
    Ok(newest.map(|(_, newest)| Chart {
        summary: summary(name, newest),
        versions: versions.into_iter().map(|(_, version)| version).collect(),
    }))
}

pub(super) fn summary(name: &str, newest: Published) -> ChartSummary {
    ChartSummary {
        name: name.to_owned(),
        newest: version(&newest),
        description: newest.description.unwrap_or_default(),
        keywords: newest.keywords.into_iter().flatten().flatten().collect(),
    }
}

pub(super) fn version(published: &Published) -> Entry {
    Entry {
        version: published.version.clone(),
        app_version: published.app_version.clone().filter(|text| !text.is_empty()),
        kube_version: published.kube_version.clone().filter(|text| !text.is_empty()),
        deprecated: published.deprecated.unwrap_or_default(),
        annotations: published.annotations.clone(),
    }
}
