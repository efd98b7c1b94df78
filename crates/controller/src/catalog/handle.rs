//! The interface of catalogs for other controllers.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use chandler_api::extensions::ExtensionCatalog;
use chandler_core::{
    catalog::{Entry, Selection, location},
    failure::{Category, Failure},
};
use chandler_source::{Access, CatalogRequest, Packages};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::watch;

use super::{changes::ChangedCatalogs, ready};
use crate::{
    locks::Mutex,
    metrics::CatalogCounts,
    routing::ObjectKey,
    watch::{are_listed, listed},
};

/// How long changes are collected: a commit can change several catalogs, which are read one after the other.
const COLLECTED_FOR: Duration = Duration::from_secs(1);

/// The watched catalogs and the packages that were read from them. Clones share the data.
#[derive(Clone, Debug)]
pub struct Catalogs {
    /// One store per watched scope.
    objects: Vec<Store<ExtensionCatalog>>,
    packages: Arc<Packages>,
    changes: watch::Sender<u64>,
    /// The last revisions of Sources at which catalogs were read, by uid.
    revisions: Arc<Mutex<HashMap<String, String>>>,
    changed: Arc<ChangedCatalogs>,
}

impl Catalogs {
    pub(super) fn new(
        objects: Vec<Store<ExtensionCatalog>>,
        packages: Arc<Packages>,
        changes: watch::Sender<u64>,
    ) -> Self {
        Self { objects, packages, changes, revisions: Arc::default(), changed: Arc::default() }
    }

    /// Creates a cache of catalogs that were listed once and are not watched.
    pub fn listed(objects: Vec<ExtensionCatalog>, packages: Arc<Packages>) -> Self {
        Self::new(vec![listed(objects)], packages, watch::channel(0).0)
    }

    /// Returns the catalog with this name. [`chandler_core::catalog::may_use`] decides whether a namespace may use it.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<ExtensionCatalog>> {
        let reference = ObjectRef::new(name).within(namespace);
        self.objects.iter().find_map(|objects| objects.get(&reference))
    }

    /// Returns the versions of a chart from the last poll, newest first. Does not access the source.
    pub async fn entries(&self, catalog: &ExtensionCatalog, chart: &str) -> Result<Vec<Entry>, Failure> {
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let (packages, catalog, chart) = (self.packages.clone(), catalog.clone(), chart.to_owned());
        let read = move || read(&packages, &catalog, &selection, &chart);
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|error| Err(Failure::new(Category::Internal, error.to_string())))
    }

    /// Returns a receiver that is notified when a catalog is created, changed or deleted, or offers other packages.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until catalogs are created, changed or deleted, offer other packages, or were read at other revisions of their
    /// Sources, also if they offer the same packages. Returns these catalogs. Only one task may call this.
    pub async fn next_changed(&self) -> BTreeSet<ObjectKey> {
        self.changed.next(COLLECTED_FOR).await
    }

    /// Records that a catalog was created, changed or deleted, or offers other packages.
    pub(super) fn record_change(&self, catalog: &ExtensionCatalog) {
        self.changed.add(catalog);
    }

    /// Returns the last revision of its Source at which a catalog was read. What it offers may be from an earlier one.
    pub fn checked_revision(&self, catalog: &ExtensionCatalog) -> Option<String> {
        self.revisions.lock().get(&catalog.uid().unwrap_or_default()).cloned()
    }

    pub(super) fn record_revision(&self, catalog: &ExtensionCatalog, revision: &str) {
        let uid = catalog.uid().unwrap_or_default();
        let before = self.revisions.lock().insert(uid, revision.to_owned());
        if before.as_deref() != Some(revision) {
            self.changed.add(catalog);
        }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.revisions.lock().remove(uid);
    }

    /// Counts the catalogs by the result of their last poll.
    pub fn counts(&self) -> CatalogCounts {
        let mut counts = CatalogCounts::default();
        for catalog in self.objects.iter().flat_map(Store::state) {
            match catalog.status.as_ref().and_then(ready).map(|ready| ready.status == "True") {
                Some(true) => counts.ready += 1,
                Some(false) => counts.failed += 1,
                None => counts.unread += 1,
            }
        }
        counts
    }

    /// Waits until the first list of each watch is complete. Returns `false` if a watch has ended.
    pub async fn wait_until_listed(&self) -> bool {
        are_listed(&self.objects).await
    }
}

fn read(
    packages: &Packages,
    catalog: &ExtensionCatalog,
    selection: &Selection,
    chart: &str,
) -> Result<Vec<Entry>, Failure> {
    let named =
        format!("ExtensionCatalog {}/{}", catalog.namespace().unwrap_or_default(), catalog.name_any());
    let (uid, access) = (catalog.uid().unwrap_or_default(), Access::default());
    let kept = packages.stored_catalog(CatalogRequest {
        key: &uid,
        url: &location(&catalog.spec),
        access: &access,
        selection,
    });
    let kept = kept.ok_or_else(|| {
        let message = format!("{named} has not been read yet; see its condition Ready");
        Failure::new(Category::SourceUnavailable, message)
    })?;
    let found = kept
        .chart(chart)
        .map_err(|error| Failure::new(Category::Internal, format!("{named} cannot be read: {error}")))?;
    let found = found.ok_or_else(|| {
        let message = format!("{named} has no chart {chart}; `chandler catalog search` lists its charts");
        Failure::new(Category::PackageNotFound, message)
    })?;
    Ok(found.versions)
}

#[cfg(test)]
mod tests {
    use chandler_sandbox::{certificates::Authority, chart, repository::ChartRepository};
    use chandler_source::{AddressPolicy, SourceOptions, Store as PackageStore};
    use kube::runtime::{reflector::store::Writer, watcher::Event};
    use serde_json::json;

    use super::*;

    fn catalog(url: &str) -> ExtensionCatalog {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": "fleet", "uid": "uid"},
            "spec": {"url": url, "filter": {"versions": "1.x"}},
        }))
        .unwrap()
    }

    /// A chart with a dependency.
    fn dependent_chart(folder: &std::path::Path) -> std::path::PathBuf {
        let metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: '>=1.30.0-0'\nannotations:\n  \
                        chandler.dev/channel: edge\n  other.example/x: y\n  chandler.dev/dependencies: |\n    \
                        - {extension: certs, range: ^1.14}\n";
        let files = [("Chart.yaml", metadata), ("templates/x.yaml", "kind: ConfigMap\n")];
        chart::write(folder, &files).unwrap()
    }

    #[tokio::test]
    async fn entries_are_those_of_the_last_poll() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(&folder.path().join("pki"), "test").unwrap();
        let repository = ChartRepository::start(&authority, &folder.path().join("served")).await.unwrap();
        for version in ["1.0.0", "1.1.0", "2.0.0"] {
            repository.publish_version(&dependent_chart(&folder.path().join("web")), version).unwrap();
        }
        let addresses =
            AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() };
        let options = SourceOptions { addresses, ..SourceOptions::default() };
        let store = PackageStore::open(folder.path().join("store")).unwrap();
        let packages = Arc::new(Packages::new(store, options));
        let mut objects = Writer::new(());
        let changes = watch::channel(0).0;
        let catalogs = Catalogs::new(vec![objects.as_reader()], packages.clone(), changes);
        assert!(catalogs.get("fleet", "charts").is_none());
        objects.apply_watcher_event(&Event::Apply(catalog(repository.url())));
        let found = catalogs.get("fleet", "charts").unwrap();
        assert!(catalogs.get("elsewhere", "charts").is_none());

        let unread = catalogs.entries(&found, "web").await.unwrap_err();
        assert!(unread.message.contains("fleet/charts has not been read yet"), "{unread}");
        let selection = Selection::new(found.spec.filter.as_ref()).unwrap();
        let access =
            Access { ca_pem: Some(authority.certificate().as_bytes().to_vec()), ..Access::default() };
        let url = repository.url();
        let request = CatalogRequest { key: "uid", url, access: &access, selection: &selection };
        packages.read_catalog(request).await.unwrap();
        let entries = catalogs.entries(&found, "web").await.unwrap();
        let versions: Vec<_> = entries.iter().map(|entry| &*entry.version).collect();
        assert_eq!(versions, ["1.1.0", "1.0.0"]);
        let published = chandler_core::catalog::published_entries(&entries);
        assert_eq!(published.versions[0].channel.as_deref(), Some("edge"));
        assert_eq!(published.versions[0].dependencies[0].extension, "certs");
        assert!(published.versions[0].kubernetes.is_some() && published.versions[0].defect.is_none());
        let absent = catalogs.entries(&found, "absent").await.unwrap_err();
        assert_eq!(absent.category, Category::PackageNotFound);
    }
}
