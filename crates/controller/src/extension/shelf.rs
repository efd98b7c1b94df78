//! What Extensions publish, ready for use.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chandler_api::extensions::{Extension, ExtensionVersion, PackageSource};
use chandler_core::{
    extension::Shelved,
    resolution::{Published, VersionName, parse_version},
};

use crate::sync::{Mutex, RwLock};

/// Namespace and name.
pub type Name = (String, String);

/// What is published, by namespace and name. Clones share it.
#[derive(Clone, Default)]
pub struct Shelf(Arc<RwLock<HashMap<Name, Place>>>);

#[derive(Clone)]
enum Place {
    /// The Extension is there; what it publishes is being found out.
    Awaited,
    Known(Arc<Volume>),
}

/// An Extension, and what it publishes.
pub struct Volume {
    pub extension: Arc<Extension>,
    pub published: Arc<Published>,
}

impl Volume {
    /// A version, complete with its source. None: it is not published any more.
    pub fn version(&self, wanted: &VersionName) -> Option<Cow<'_, ExtensionVersion>> {
        let spec = &self.extension.spec;
        let is_it =
            |version: &&ExtensionVersion| parse_version(&version.version).as_ref() == Some(&wanted.version);
        if let Some(listed) = spec.versions.iter().find(is_it) {
            let mut listed = Cow::Borrowed(listed);
            if listed.source.version.is_none() {
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
                    chart: follow.chart.clone(),
                    version: Some(wanted.text.clone()),
                },
                ..ExtensionVersion::default()
            })
        })
    }
}

impl Shelf {
    /// An Extension is there, and will be published.
    pub fn awaits(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.write().entry(key).or_insert(Place::Awaited);
    }

    /// Puts an Extension there. Says whether that changes what can be chosen, or how.
    pub fn put(&self, namespace: &str, name: &str, volume: Volume) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        let mut all = self.0.write();
        let same = matches!(all.get(&key), Some(Place::Known(known))
            if known.published == volume.published && known.extension.spec == volume.extension.spec);
        all.insert(key, Place::Known(Arc::new(volume)));
        !same
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.write().remove(&key);
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Volume>> {
        match self.place(namespace, name) {
            Some(Place::Known(volume)) => Some(volume),
            _ => None,
        }
    }

    /// Copies what is there now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.read().clone())
    }

    fn place(&self, namespace: &str, name: &str) -> Option<Place> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.read().get(&key).cloned()
    }
}

/// What was there at one moment. Conclusions from several reads hold only if all of them see the same moment: an Extension
/// that is published between two of them would look like one that nothing asks for.
pub struct Snapshot(HashMap<Name, Place>);

impl Snapshot {
    /// All that is published.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.0.values().filter_map(|place| match place {
            Place::Known(volume) => Some(volume),
            Place::Awaited => None,
        })
    }

    pub fn is_published(&self, namespace: &str, name: &str) -> bool {
        matches!(self.0.get(&(namespace.to_owned(), name.to_owned())), Some(Place::Known(_)))
    }

    /// Whether everything that is there has been published.
    pub fn is_complete(&self) -> bool {
        self.0.values().all(|place| matches!(place, Place::Known(_)))
    }
}

/// A look at the shelf that remembers what was asked for and is not there yet.
pub struct Look<'a> {
    shelf: &'a Shelf,
    /// What lies there for this look only.
    laid: HashMap<Name, Arc<Published>>,
    awaited: Mutex<BTreeSet<Name>>,
}

impl<'a> Look<'a> {
    pub fn at(shelf: &'a Shelf) -> Self {
        Self { shelf, laid: HashMap::new(), awaited: Mutex::default() }
    }

    pub fn lay(&mut self, namespace: &str, name: &str, published: Arc<Published>) {
        self.laid.insert((namespace.to_owned(), name.to_owned()), published);
    }

    /// Namespace and name of what is not there yet.
    pub fn awaited(self) -> BTreeSet<Name> {
        self.awaited.into_inner()
    }
}

impl Shelved for Look<'_> {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Published>> {
        if let Some(laid) = self.laid.get(&(namespace.to_owned(), name.to_owned())) {
            return Some(laid.clone());
        }
        match self.shelf.place(namespace, name)? {
            Place::Known(volume) => Some(volume.published.clone()),
            Place::Awaited => {
                let awaited = (namespace.to_owned(), name.to_owned());
                self.awaited.lock().insert(awaited);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        let extension = Extension::new("net", chandler_api::extensions::ExtensionSpec::default());
        Volume { extension: Arc::new(extension), published: Arc::default() }
    }

    #[test]
    fn a_snapshot_does_not_see_what_is_published_later() {
        let shelf = Shelf::default();
        shelf.awaits("platform", "net");
        let before = shelf.snapshot();
        assert!(shelf.put("platform", "net", volume()));
        let after = shelf.snapshot();
        assert_eq!((before.is_complete(), after.is_complete()), (false, true));
        assert_eq!((before.all().count(), after.all().count()), (0, 1));
        let published = |at: &Snapshot| at.is_published("platform", "net");
        assert_eq!((published(&before), published(&after)), (false, true));
    }
}
