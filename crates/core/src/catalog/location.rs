//! Where the packages of a catalog are.

use std::borrow::Cow;

use chandler_api::extensions::{CatalogSource, ExtensionCatalogSpec, PackageSource, PinnedPackage, Scope};

use super::Entry;

/// Returns where the packages of a catalog are: the URL, or the folder of a Source. A catalog with another location is another
/// catalog.
pub fn location(spec: &ExtensionCatalogSpec) -> Cow<'_, str> {
    let Some(CatalogSource { source_ref, path }) = &spec.source else { return Cow::Borrowed(&spec.url) };
    let owner = match source_ref.scope {
        Scope::Namespace => "",
        Scope::Platform => " of the platform",
    };
    let folder = join(path.as_deref(), "").map(|folder| format!(", folder {folder}")).unwrap_or_default();
    Cow::Owned(format!("Source {}{owner}{folder}", source_ref.name))
}

/// Returns the path of a folder in the folder of a catalog, relative to the root of the Source. `None` means the root.
pub fn join(path: Option<&str>, folder: &str) -> Option<String> {
    let parts = path.unwrap_or_default().split('/').chain(folder.split('/'));
    let parts: Vec<_> = parts.filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// A package that a catalog offers: a folder of a Source, and what the catalog read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedFolder {
    pub source: PackageSource,
    pub package: PinnedPackage,
}

/// Returns the package of an entry. `None` if the catalog does not offer folders of a Source. `scope` is that of the reference to
/// the catalog: the Source of a catalog of the platform is the platform's, too.
pub fn offered_folder(catalog: &ExtensionCatalogSpec, entry: &Entry, scope: Scope) -> Option<OfferedFolder> {
    let (source, folder) = (catalog.source.as_ref()?, entry.folder.as_ref()?);
    let mut source_ref = source.source_ref.clone();
    if scope == Scope::Platform {
        source_ref.scope = Scope::Platform;
    }
    let path = Some(folder.path.clone()).filter(|path| !path.is_empty());
    Some(OfferedFolder {
        source: PackageSource { source_ref: Some(source_ref), path, ..PackageSource::default() },
        package: PinnedPackage {
            revision: folder.revision.clone(),
            digest: folder.digest.clone(),
            ..PinnedPackage::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::EntryFolder;

    fn spec(source: &Value) -> ExtensionCatalogSpec {
        serde_json::from_value(json!({"source": source})).unwrap()
    }

    #[test]
    fn a_catalog_is_identified_by_url_or_folder() {
        let url = serde_json::from_value(json!({"url": "https://charts.example"})).unwrap();
        assert_eq!(location(&url), "https://charts.example");
        let rows = [
            (json!({"sourceRef": {"name": "git"}}), "Source git"),
            (json!({"sourceRef": {"name": "git"}, "path": "./a//b/"}), "Source git, folder a/b"),
            (
                json!({"sourceRef": {"name": "git", "scope": "Platform"}, "path": "a"}),
                "Source git of the platform, folder a",
            ),
        ];
        for (source, expected) in rows {
            assert_eq!(location(&spec(&source)), expected);
        }
    }

    #[test]
    fn an_entry_is_the_package_that_the_catalog_has_read() {
        let git = json!({"sourceRef": {"name": "git"}, "path": "charts"});
        let folder =
            EntryFolder { path: "charts/web".to_owned(), revision: "c1".to_owned(), digest: "d".to_owned() };
        let entry = Entry { version: "1.0.0".to_owned(), folder: Some(folder), ..Entry::default() };
        let offered = offered_folder(&spec(&git), &entry, Scope::Namespace).unwrap();
        assert_eq!(offered.source.path.as_deref(), Some("charts/web"));
        assert_eq!(offered.source.source_ref.unwrap().scope, Scope::Namespace);
        assert_eq!((&*offered.package.revision, &*offered.package.digest), ("c1", "d"));
        let of_platform = offered_folder(&spec(&git), &entry, Scope::Platform).unwrap();
        assert_eq!(of_platform.source.source_ref.unwrap().scope, Scope::Platform);
        assert_eq!(offered_folder(&spec(&git), &Entry::default(), Scope::Namespace), None);
        assert_eq!((join(None, ""), join(Some("."), "web")), (None, Some("web".to_owned())));
    }
}
