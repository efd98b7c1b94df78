//! Reads a catalog that is a folder of a Source.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use chandler_core::{
    catalog::{EntryFolder, FolderChart, folder_charts, join},
    digest::Digest,
    failure::Failure,
    resolution::parse_version,
};
use chandler_source::{
    Catalog, CatalogRequest, Chart, ChartSummary, FilesOwner, Packages, PackedFiles, SourceTree,
};

use crate::tasks::with_files;

/// Reads the charts in a folder of a Source, makes a package of each, and stores the packages and the catalog. A folder that has
/// not changed is not read again. If a chart is invalid, the stored catalog stays. `owner` is that of the Source.
pub async fn read_folder(
    packages: &Arc<Packages>,
    request: CatalogRequest<'_>,
    owner: FilesOwner<'_>,
    tree: &Arc<SourceTree>,
    path: Option<&str>,
) -> Result<Catalog, Failure> {
    let (folder, digest) = folder_of(tree, path).await?;
    let stored = packages.stored_catalog(request);
    if let Some(stored) = stored.filter(|stored| stored.digest() == digest.as_str()) {
        return Ok(stored);
    }
    let (files, selection) = (folder.clone(), request.selection.clone());
    let found = with_files(move || folder_charts(files.entries(), &selection)).await?;
    let mut charts: BTreeMap<String, Vec<FolderChart>> = BTreeMap::new();
    for mut chart in found {
        let path = join(path, &chart.folder).unwrap_or_default();
        let package = package(packages, owner, &folder, &chart).await?;
        chart.entry.folder = Some(EntryFolder { path, revision: tree.revision.clone(), digest: package });
        charts.entry(chart.name.clone()).or_default().push(chart);
    }
    let charts = charts.into_iter().filter_map(|(name, versions)| newest_first(name, versions)).collect();
    Ok(packages.store_catalog(request, &digest, charts).await?)
}

/// Returns the folder of a catalog and the digest of its files.
async fn folder_of(tree: &Arc<SourceTree>, path: Option<&str>) -> Result<(Arc<SourceTree>, Digest), Failure> {
    let (tree, path) = (tree.clone(), path.unwrap_or_default().to_owned());
    with_files(move || {
        let folder = tree.below(&path)?;
        let digest = folder.digest();
        Ok((Arc::new(folder), digest))
    })
    .await
}

/// Makes and stores the package of a chart, and returns its digest.
async fn package(
    packages: &Arc<Packages>,
    owner: FilesOwner<'_>,
    folder: &Arc<SourceTree>,
    chart: &FolderChart,
) -> Result<String, Failure> {
    let origin = format!("chart {}, folder {:?}", chart.name, chart.folder);
    let (packages, folder, path) = (packages.clone(), folder.clone(), chart.folder.clone());
    let (namespace, url) = (owner.namespace.to_owned(), owner.url.to_owned());
    // The same thread stores it, so that the number of threads limits the memory for packages.
    with_files(move || {
        let packed = folder.below(&path).and_then(|files| PackedFiles::chart(files.entries()));
        let packed = packed.map_err(|error| {
            let Failure { category, message } = Failure::from(error);
            Failure::new(category, format!("{origin}: {message}"))
        })?;
        let owner = FilesOwner { namespace: &namespace, url: &url };
        Ok(packages.store_files(packed, owner, &origin)?.digest.to_string())
    })
    .await
}

/// Returns a chart with its versions, of which there is at least one.
fn newest_first(name: String, mut versions: Vec<FolderChart>) -> Option<Chart> {
    versions.sort_by_key(|chart| Reverse(parse_version(&chart.entry.version)));
    let newest = versions.first()?;
    let summary = ChartSummary {
        name,
        description: newest.description.clone(),
        keywords: newest.keywords.clone(),
        newest: newest.entry.clone(),
    };
    Some(Chart { summary, versions: versions.into_iter().map(|chart| chart.entry).collect() })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chandler_core::{catalog::Selection, failure::Category};
    use chandler_source::Access;

    use super::*;
    use crate::sources::testing::packages;

    const WEB: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    const NEXT: &str = "apiVersion: v2\nname: web\nversion: 1.1.0\ndescription: A server\n";

    fn tree(revision: &str, files: &[(&str, &'static str)]) -> SourceTree {
        let files =
            files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from_static(text.as_bytes())));
        SourceTree { revision: revision.to_owned(), files: files.collect() }
    }

    #[tokio::test]
    async fn only_changes_in_the_folder_change_a_catalog_and_a_bad_commit_keeps_it() {
        let store = tempfile::tempdir().unwrap();
        let packages = packages(store.path());
        let (access, selection) = (Access::default(), Selection::new(None).unwrap());
        let request =
            CatalogRequest { key: "uid", url: "Source git", access: &access, selection: &selection };
        let read = async |revision: &str, files: &[(&str, &'static str)]| {
            let owner = FilesOwner { namespace: "team", url: "https://git.example/charts" };
            read_folder(&packages, request, owner, &Arc::new(tree(revision, files)), Some("charts")).await
        };
        let missing = read("c0", &[("other/a.yaml", "")]).await.unwrap_err();
        assert_eq!(missing.category, Category::PackageNotFound);
        let first = read("c1", &[("charts/a/Chart.yaml", WEB), ("charts/b/Chart.yaml", NEXT)]).await.unwrap();
        let web = first.chart("web").unwrap().unwrap();
        assert_eq!((first.packages(), &*web.summary.description), (1, "A server"));
        let versions: Vec<_> = web.versions.iter().map(|entry| &*entry.version).collect();
        assert_eq!(versions, ["1.1.0", "1.0.0"]);
        let folder = web.versions[1].folder.clone().unwrap();
        assert_eq!((&*folder.path, &*folder.revision), ("charts/a", "c1"));

        let files = [("charts/a/Chart.yaml", WEB), ("charts/b/Chart.yaml", NEXT), ("README.md", "text")];
        let same = read("c2", &files).await.unwrap();
        assert_eq!(same.digest(), first.digest());
        assert_eq!(same.chart("web").unwrap().unwrap(), web, "the revision is that of the content");

        for bad in ["name: web\nversion: soon\n", WEB] {
            let failure = read("c3", &[("charts/a/Chart.yaml", WEB), ("charts/b/Chart.yaml", bad)]).await;
            assert!(failure.unwrap_err().message.contains("b/Chart.yaml"), "{bad}");
        }
        assert!(read("c4", &[("charts/README.md", "text")]).await.is_err(), "no chart is left");
        let kept = packages.stored_catalog(request).unwrap();
        assert_eq!(kept.chart("web").unwrap().unwrap(), web);

        let next = read("c5", &[("charts/b/Chart.yaml", NEXT)]).await.unwrap();
        let versions = next.chart("web").unwrap().unwrap().versions;
        assert_eq!(versions.len(), 1);
        let (before, after) = (web.versions[0].folder.clone().unwrap(), versions[0].folder.clone().unwrap());
        assert_eq!((after.digest, &*after.revision), (before.digest, "c5"));
    }
}
