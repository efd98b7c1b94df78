//! The Extensions of the management cluster, with the versions that they publish.

pub mod catalog_offers;
pub mod offers;
pub mod publish;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chandler_api::extensions::{Extension, ExtensionVersion, PackageSource};
use chandler_core::{
    extension::PublishedExtensions,
    resolution::{Published, VersionName, parse_version},
};

use crate::locks::{Mutex, RwLock};

/// Namespace and name.
pub type Name = (String, String);

type Entries = HashMap<Name, Entry>;

/// The Extensions of the management cluster and the versions that they publish. Clones share them.
#[derive(Clone, Default)]
pub struct ExtensionRegistry(Arc<RwLock<Arc<Entries>>>);

#[derive(Clone)]
enum Entry {
    /// The Extension exists; its sources are still being read.
    Pending,
    Published(Arc<RegisteredExtension>),
}

/// An Extension and the versions that it publishes.
pub struct RegisteredExtension {
    pub extension: Arc<Extension>,
    pub published: Arc<Published>,
}

impl RegisteredExtension {
    /// Returns a version, complete with its source. `None` means that it is no longer published.
    pub fn version(&self, wanted: &VersionName) -> Option<Cow<'_, ExtensionVersion>> {
        let spec = &self.extension.spec;
        let is_it =
            |version: &&ExtensionVersion| parse_version(&version.version).as_ref() == Some(&wanted.version);
        if let Some(listed) = spec.versions.iter().find(is_it) {
            let mut listed = Cow::Borrowed(listed);
            if listed.source.version.is_none() && listed.source.source_ref.is_none() {
                let version = listed.version.clone();
                listed.to_mut().source.version = Some(version);
            }
            return Some(listed);
        }
        let follow = spec.follow_kubernetes.as_ref()?;
        let known = self.published.versions.iter().any(|known| known.name == *wanted);
        known.then(|| {
            Cow::Owned(ExtensionVersion {
                version: wanted.text.clone(),
                source: PackageSource {
                    repository: follow.repository.clone(),
                    catalog: follow.catalog.clone(),
                    source_ref: follow.source_ref.clone(),
                    path: follow.path.clone(),
                    chart: follow.chart.clone(),
                    version: Some(wanted.text.clone()),
                },
                ..ExtensionVersion::default()
            })
        })
    }
}

impl ExtensionRegistry {
    /// Adds an Extension whose versions are not known yet.
    pub fn insert_pending(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        Arc::make_mut(&mut self.0.write()).entry(key).or_insert(Entry::Pending);
    }

    /// Adds or replaces an Extension. Returns whether that changes the choice of versions, or their content.
    pub fn insert(&self, namespace: &str, name: &str, registered: RegisteredExtension) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        let mut entries = self.0.write();
        let same = matches!(entries.get(&key), Some(Entry::Published(known))
            if known.published == registered.published && known.extension.spec == registered.extension.spec);
        Arc::make_mut(&mut entries).insert(key, Entry::Published(Arc::new(registered)));
        !same
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        Arc::make_mut(&mut self.0.write()).remove(&key);
    }

    /// Returns `None` if there is no such Extension or its versions are not known yet.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<RegisteredExtension>> {
        match self.0.read().get(&(namespace.to_owned(), name.to_owned())) {
            Some(Entry::Published(registered)) => Some(registered.clone()),
            _ => None,
        }
    }

    /// Returns the state of this moment, which later changes do not reach.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { entries: self.0.read().clone(), inserted: HashMap::new(), missing: Mutex::default() }
    }
}

/// The registry at one moment. A decision that reads several times needs this: an Extension that is published between two
/// reads would look like one that nothing requests.
pub struct Snapshot {
    entries: Arc<Entries>,
    /// Added to this snapshot only.
    inserted: HashMap<Name, Arc<Published>>,
    missing: Mutex<BTreeSet<Name>>,
}

impl Snapshot {
    /// Returns all published Extensions.
    pub fn all(&self) -> impl Iterator<Item = &Arc<RegisteredExtension>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Published(registered) => Some(registered),
            Entry::Pending => None,
        })
    }

    pub fn is_published(&self, namespace: &str, name: &str) -> bool {
        matches!(self.entries.get(&(namespace.to_owned(), name.to_owned())), Some(Entry::Published(_)))
    }

    /// Returns whether the versions of all Extensions are known.
    pub fn is_complete(&self) -> bool {
        self.entries.values().all(|entry| matches!(entry, Entry::Published(_)))
    }

    /// Adds versions to this snapshot; the registry does not change.
    pub fn insert(&mut self, namespace: &str, name: &str, published: Arc<Published>) {
        self.inserted.insert((namespace.to_owned(), name.to_owned()), published);
    }

    /// Returns the pending Extensions that were read from this snapshot.
    pub fn into_missing(self) -> BTreeSet<Name> {
        self.missing.into_inner()
    }
}

impl PublishedExtensions for Snapshot {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Published>> {
        let name = (namespace.to_owned(), name.to_owned());
        if let Some(inserted) = self.inserted.get(&name) {
            return Some(inserted.clone());
        }
        match self.entries.get(&name)? {
            Entry::Published(registered) => Some(registered.published.clone()),
            Entry::Pending => {
                self.missing.lock().insert(name);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> RegisteredExtension {
        let extension = Extension::new("net", chandler_api::extensions::ExtensionSpec::default());
        RegisteredExtension { extension: Arc::new(extension), published: Arc::default() }
    }

    #[test]
    fn a_snapshot_does_not_see_what_is_published_later() {
        let registry = ExtensionRegistry::default();
        registry.insert_pending("platform", "net");
        let before = registry.snapshot();
        assert!(registry.insert("platform", "net", registered()));
        let after = registry.snapshot();
        assert_eq!((before.is_complete(), after.is_complete()), (false, true));
        assert_eq!((before.all().count(), after.all().count()), (0, 1));
        let published = |at: &Snapshot| at.is_published("platform", "net");
        assert_eq!((published(&before), published(&after)), (false, true));
    }
}
