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
    resolution::{Published, VersionName, parse_version, unread},
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
    /// The Extension exists; its sources cannot be read. Its spec is known, but its versions are not.
    Unread(Arc<RegisteredExtension>),
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

    /// Adds an Extension whose sources cannot be read. Versions that were read before stay registered. Returns whether that changes
    /// what is known.
    pub fn insert_unread(&self, namespace: &str, name: &str, extension: Arc<Extension>) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        let mut entries = self.0.write();
        let same = match entries.get(&key) {
            Some(Entry::Published(_)) => true,
            Some(Entry::Unread(known)) => known.extension.spec == extension.spec,
            Some(Entry::Pending) | None => false,
        };
        if !same {
            let published = Arc::new(unread(&extension.spec));
            let entry = Entry::Unread(Arc::new(RegisteredExtension { extension, published }));
            Arc::make_mut(&mut entries).insert(key, entry);
        }
        !same
    }

    /// Returns `None` if there is no such Extension or its versions are not known.
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
    /// Returns all Extensions whose sources are not being read for the first time. The versions of some may be unknown.
    pub fn all(&self) -> impl Iterator<Item = &Arc<RegisteredExtension>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Published(registered) | Entry::Unread(registered) => Some(registered),
            Entry::Pending => None,
        })
    }

    /// Returns whether the Extension exists, also if its versions are not known.
    pub fn exists(&self, namespace: &str, name: &str) -> bool {
        self.entries.contains_key(&(namespace.to_owned(), name.to_owned()))
    }

    pub fn is_published(&self, namespace: &str, name: &str) -> bool {
        matches!(self.entries.get(&(namespace.to_owned(), name.to_owned())), Some(Entry::Published(_)))
    }

    /// Returns whether the sources of all Extensions in these namespaces were read once, or could not be read. Extensions in other
    /// namespaces do not concern a cluster.
    pub fn is_complete_in(&self, namespaces: &[&str]) -> bool {
        self.entries.iter().all(|((namespace, _), entry)| {
            !matches!(entry, Entry::Pending) || !namespaces.contains(&namespace.as_str())
        })
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
            Entry::Published(registered) | Entry::Unread(registered) => Some(registered.published.clone()),
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
        let complete = |at: &Snapshot| at.is_complete_in(&["fleet", "platform"]);
        assert_eq!((complete(&before), complete(&after)), (false, true));
        assert_eq!((before.all().count(), after.all().count()), (0, 1));
        let published = |at: &Snapshot| at.is_published("platform", "net");
        assert_eq!((published(&before), published(&after)), (false, true));
    }

    #[test]
    fn an_extension_that_cannot_be_read_does_not_keep_others_waiting() {
        let registry = ExtensionRegistry::default();
        registry.insert_pending("fleet", "dead");
        registry.insert("platform", "net", registered());
        assert!(!registry.snapshot().is_complete_in(&["fleet", "platform"]));
        assert!(registry.snapshot().is_complete_in(&["other", "platform"]), "another namespace");
        assert!(registry.insert_unread("fleet", "dead", registered().extension));
        assert!(!registry.insert_unread("fleet", "dead", registered().extension), "the same");
        let snapshot = registry.snapshot();
        assert!(snapshot.is_complete_in(&["fleet", "platform"]));
        assert!(snapshot.exists("fleet", "dead") && !snapshot.is_published("fleet", "dead"));
        assert!(snapshot.get("fleet", "dead").unwrap().is_unread);
        assert!(registry.get("fleet", "dead").is_none());
        assert!(!registry.insert_unread("platform", "net", registered().extension), "known versions stay");
        assert!(registry.insert("fleet", "dead", registered()), "its sources are back");
    }
}
