//! Keys of extensions on one cluster.

use std::{cmp::Ordering, fmt};

use chandler_api::extensions::{ExtensionReference, Scope};

/// Prefix of the keys of platform extensions.
const PLATFORM: &str = "platform/";
/// Prefix of the keys of packages from a catalog in the cluster's namespace that is itself called `platform`.
const LOCAL: &str = "./";

/// The key of an extension on one cluster: an Extension or a package of a catalog, in the cluster's namespace or in
/// that of the platform.
///
/// Its text form is stored in release objects and in an annotation of the Cluster. The solver identifies extensions by
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionKey {
    pub scope: Scope,
    /// `None` means an Extension.
    pub catalog: Option<String>,
    pub name: String,
}

impl ExtensionKey {
    /// Returns the key of a reference from the namespace `own` of a cluster.
    ///
    /// If `own` is the namespace of the platform, platform extensions have the scope [`Scope::Namespace`].
    pub fn of(reference: &ExtensionReference, own: &str, platform: &str) -> Self {
        Self {
            scope: scope_of(namespace_of(reference.scope, own, platform), own),
            catalog: reference.catalog.clone(),
            name: reference.name.clone(),
        }
    }

    /// Returns the key of `local_name` in `namespace`, for a cluster in the namespace `own`.
    pub fn in_namespace(namespace: &str, local_name: &str, own: &str) -> Self {
        Self::within(scope_of(namespace, own), local_name)
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Self {
        if let Some(local_name) = text.strip_prefix(PLATFORM) {
            return Self::within(Scope::Platform, local_name);
        }
        let local = text.strip_prefix(LOCAL).filter(|rest| rest.starts_with(PLATFORM));
        Self::within(Scope::Namespace, local.unwrap_or(text))
    }

    /// Names of Extensions contain no slash, so a slash always separates a catalog from a package.
    fn within(scope: Scope, local_name: &str) -> Self {
        match local_name.split_once('/') {
            Some((catalog, name)) => Self { scope, catalog: Some(catalog.to_owned()), name: name.to_owned() },
            None => Self { scope, catalog: None, name: local_name.to_owned() },
        }
    }

    /// Returns the name without the scope: `NAME` or `CATALOG/NAME`.
    pub fn local_name(&self) -> String {
        match &self.catalog {
            Some(catalog) => format!("{catalog}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the namespace of the extension.
    pub fn namespace<'a>(&self, own: &'a str, platform: &'a str) -> &'a str {
        namespace_of(self.scope, own, platform)
    }

    fn order(&self) -> (bool, Option<&str>, &str) {
        (self.scope == Scope::Platform, self.catalog.as_deref(), &self.name)
    }
}

impl Ord for ExtensionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for ExtensionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ExtensionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local_name = self.local_name();
        match self.scope {
            Scope::Platform => write!(f, "{PLATFORM}{local_name}"),
            Scope::Namespace if local_name.starts_with(PLATFORM) => write!(f, "{LOCAL}{local_name}"),
            Scope::Namespace => f.write_str(&local_name),
        }
    }
}

/// Returns whether a key in its text form is that of an extension of the platform.
pub(crate) fn is_of_platform(key: &str) -> bool {
    key.starts_with(PLATFORM)
}

/// Returns the namespace that a scope refers to.
pub fn namespace_of<'a>(scope: Scope, own: &'a str, platform: &'a str) -> &'a str {
    match scope {
        Scope::Namespace => own,
        Scope::Platform => platform,
    }
}

fn scope_of(namespace: &str, own: &str) -> Scope {
    if namespace == own { Scope::Namespace } else { Scope::Platform }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_through_text() {
        let rows = [
            (Scope::Namespace, None, "db", "db"),
            (Scope::Platform, None, "db", "platform/db"),
            (Scope::Namespace, Some("charts"), "app", "charts/app"),
            (Scope::Platform, Some("charts"), "app", "platform/charts/app"),
            (Scope::Namespace, Some("platform"), "db", "./platform/db"),
            (Scope::Platform, Some("platform"), "db", "platform/platform/db"),
        ];
        for (scope, catalog, name, text) in rows {
            let key = ExtensionKey { scope, catalog: catalog.map(str::to_owned), name: name.to_owned() };
            assert_eq!(key.to_string(), text);
            assert_eq!(ExtensionKey::parse(text), key);
        }
    }

    #[test]
    fn the_scope_depends_on_the_namespace_of_the_cluster() {
        let reference = ExtensionReference { name: "db".to_owned(), catalog: None, scope: Scope::Platform };
        assert_eq!(ExtensionKey::of(&reference, "fleet", "system").to_string(), "platform/db");
        assert_eq!(ExtensionKey::of(&reference, "system", "system").to_string(), "db");
        assert_eq!(
            ExtensionKey::in_namespace("system", "charts/db", "fleet").namespace("fleet", "system"),
            "system"
        );
    }
}
