//! From instances and Extensions to what is asked of the solver for one cluster.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{DependencyPolicy, ExtensionInstance};
use kube_core::{Resource as _, ResourceExt as _};

use super::{ExtensionKey, Origin};
use crate::resolution::{Published, Range, Universe, Wanted};

/// Extensions by namespace and name.
pub trait PublishedExtensions {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Published>>;
}

/// What is asked for on a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    pub universe: Universe,
    /// Oldest request first.
    pub wanted: Vec<Wanted>,
    /// Instances whose `spec.version` cannot be used, oldest first.
    pub defects: Vec<Defect>,
    /// Which instances bring an extension: those that stay before those that go, the eldest first.
    pub providers: BTreeMap<ExtensionKey, Vec<String>>,
}

/// An instance that asks for versions by a text that is not a range. No version is chosen for it: any choice would be a
/// guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    pub extension: String,
    /// What is wrong, for people.
    pub message: String,
    pub install_dependencies: bool,
}

/// What `instances` ask for on a cluster of namespace `own`. They all select it.
pub fn demand(
    own: &str,
    platform: &str,
    instances: &[impl AsRef<ExtensionInstance>],
    registry: &impl PublishedExtensions,
) -> Demand {
    let mut instances: Vec<&ExtensionInstance> = instances.iter().map(AsRef::as_ref).collect();
    instances.sort_by_key(|instance| {
        let deleting = instance.meta().deletion_timestamp.is_some();
        let implied = Origin::of(instance) == Some(Origin::Dependency);
        let created = instance.meta().creation_timestamp.as_ref().map(|time| time.0);
        (deleting, implied, created, instance.name_any())
    });
    let mut demand = Demand::default();
    let mut open = Vec::new();
    for instance in instances {
        let Some(reference) = instance.spec.extension.as_ref() else { continue };
        let key = ExtensionKey::of(reference, own, platform);
        demand.providers.entry(key.clone()).or_default().push(instance.name_any());
        if Origin::of(instance) != Some(Origin::Dependency) && instance.meta().deletion_timestamp.is_none() {
            match wanted(instance, key.to_string()) {
                Ok(wanted) => demand.wanted.push(wanted),
                Err(defect) => demand.defects.push(defect),
            }
        }
        open.push(key);
    }
    while let Some(key) = open.pop() {
        let name = key.to_string();
        if demand.universe.extensions.contains_key(&name) {
            continue;
        }
        let namespace = key.namespace(own, platform);
        let Some(published) = registry.get(namespace, &key.local_name()) else { continue };
        let published = qualified(&published, own, platform, namespace, registry, &mut open);
        demand.universe.extensions.insert(name, published);
    }
    demand
}

fn wanted(instance: &ExtensionInstance, extension: String) -> Result<Wanted, Defect> {
    let spec = &instance.spec;
    let install_dependencies = spec.dependencies == DependencyPolicy::Install;
    match spec.version.as_deref().map_or(Ok(Range::any()), str::parse) {
        Ok(range) => Ok(Wanted { extension, range, channel: spec.channel.clone(), install_dependencies }),
        Err(error) => {
            let name = instance.name_any();
            let message = format!("spec.version of ExtensionInstance {name} cannot be used: {error}");
            Err(Defect { extension, message, install_dependencies })
        }
    }
}

/// What an extension publishes, with what it needs called by its key: beside it, or of the platform.
fn qualified(
    published: &Published,
    own: &str,
    platform: &str,
    namespace: &str,
    registry: &impl PublishedExtensions,
    open: &mut Vec<ExtensionKey>,
) -> Published {
    let mut published = published.clone();
    for needed in published.versions.iter_mut().flat_map(|version| &mut version.dependencies) {
        let beside = registry.get(namespace, &needed.extension).is_some();
        let at = if beside { namespace } else { platform };
        let key = ExtensionKey::in_namespace(at, &needed.extension, own);
        needed.extension = key.to_string();
        open.push(key);
    }
    published
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::ExtensionSpec;
    use serde_json::json;

    use super::*;
    use crate::resolution::published;

    impl PublishedExtensions for BTreeMap<(&str, &str), Arc<Published>> {
        fn get(&self, namespace: &str, name: &str) -> Option<Arc<Published>> {
            BTreeMap::get(self, &(namespace, name)).cloned()
        }
    }

    fn extension(needs: &[&str]) -> Arc<Published> {
        let needs: Vec<_> = needs.iter().map(|name| json!({"extension": name})).collect();
        let spec: ExtensionSpec = serde_json::from_value(json!({"versions": [{
            "version": "1.0.0", "source": {"repository": "https://c.example", "chart": "c"}, "dependencies": needs,
        }]}))
        .unwrap();
        Arc::new(published(&spec, |_| None, []))
    }

    fn instance(name: &str, extension: &serde_json::Value) -> Arc<ExtensionInstance> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "fleet"},
                "spec": {"extension": extension, "clusters": {"name": "blue"}},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn what_is_needed_is_found_beside_and_then_in_the_platform() {
        let registry = BTreeMap::from([
            (("fleet", "app"), extension(&["db", "net"])),
            (("fleet", "db"), extension(&[])),
            (("system", "db"), extension(&[])),
            (("system", "net"), extension(&["db"])),
        ]);
        let asked = [instance("mine", &json!({"name": "app"}))];
        let found = demand("fleet", "system", &asked, &registry);
        let keys: Vec<_> = found.universe.extensions.keys().map(String::as_str).collect();
        assert_eq!(keys, ["app", "db", "platform/db", "platform/net"]);
        let needs = |key: &str| -> Vec<_> {
            let version = &found.universe.extensions[key].versions[0];
            version.dependencies.iter().map(|needed| needed.extension.clone()).collect()
        };
        assert_eq!(needs("app"), ["db", "platform/net"]);
        assert_eq!(needs("platform/net"), ["platform/db"]);
        assert_eq!(found.providers[&ExtensionKey::parse("app")], ["mine"]);
    }

    #[test]
    fn packages_of_catalogs_are_never_taken_for_extensions() {
        let registry = BTreeMap::from([
            (("fleet", "charts/app"), extension(&["db"])),
            (("fleet", "platform/db"), extension(&[])),
            (("system", "charts/app"), extension(&[])),
            (("system", "db"), extension(&[])),
        ]);
        let asked = [
            instance("a", &json!({"name": "app", "catalog": "charts"})),
            instance("b", &json!({"name": "db", "catalog": "platform"})),
            instance("c", &json!({"name": "app", "catalog": "charts", "scope": "Platform"})),
        ];
        let found = demand("fleet", "system", &asked, &registry);
        let keys: Vec<_> = found.universe.extensions.keys().map(String::as_str).collect();
        assert_eq!(keys, ["./platform/db", "charts/app", "platform/charts/app", "platform/db"]);
        let needed = &found.universe.extensions["charts/app"].versions[0].dependencies[0];
        assert_eq!(needed.extension, "platform/db", "the Extension of the platform, not the package");
    }

    #[test]
    fn an_extension_that_is_not_there_is_wanted_all_the_same() {
        let asked = [instance("a", &json!({"name": "gone", "scope": "Platform"}))];
        let found = demand("fleet", "system", &asked, &BTreeMap::new());
        assert_eq!(found.wanted[0].extension, "platform/gone");
        assert!(found.universe.extensions.is_empty());
    }

    #[test]
    fn a_version_that_is_no_range_never_means_any_version() {
        let mut asked = (*instance("a", &json!({"name": "app"}))).clone();
        asked.spec.version = Some("latest".to_owned());
        let registry = BTreeMap::from([(("fleet", "app"), extension(&[]))]);
        let found = demand("fleet", "system", &[Arc::new(asked)], &registry);
        assert_eq!(found.wanted, []);
        let message = &found.defects[0].message;
        assert!(message.starts_with("spec.version of ExtensionInstance a cannot be used: "), "{message}");
        assert!(message.contains("latest"), "{message}");
        assert_eq!(
            found.providers[&ExtensionKey::parse("app")],
            ["a"],
            "it is not taken for a cluster without the extension"
        );
    }
}
