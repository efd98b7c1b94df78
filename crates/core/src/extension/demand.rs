//! Collects the version requests of one cluster from its ExtensionInstances, and the extensions that they can reach.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{DependencyPolicy, ExtensionInstance};
use kube_core::{Resource as _, ResourceExt as _};

use super::{ExtensionKey, Origin};
use crate::resolution::{Published, Range, Universe, VersionRequest};

/// Looks up published extensions by namespace and name.
pub trait PublishedExtensions {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Published>>;
}

/// The version requests of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The requested extensions and all that their versions depend on.
    pub universe: Universe,
    /// Valid requests, oldest first.
    pub requests: Vec<VersionRequest>,
    /// Requests whose `spec.version` is not a range, oldest first.
    pub invalid: Vec<InvalidRequest>,
    /// The instances of each extension, those that are being deleted last, then oldest first.
    pub providers: BTreeMap<ExtensionKey, Vec<String>>,
}

/// An instance whose `spec.version` is not a range. No version is chosen for it: any choice would be a guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRequest {
    pub extension: String,
    /// The problem, for users.
    pub message: String,
    pub install_dependencies: bool,
}

/// Collects the requests of `instances`, all of which select the cluster. `own` is the namespace of the cluster.
pub fn demand(
    own: &str,
    platform: &str,
    instances: &[impl AsRef<ExtensionInstance>],
    registry: &impl PublishedExtensions,
) -> Demand {
    let mut instances: Vec<&ExtensionInstance> = instances.iter().map(AsRef::as_ref).collect();
    instances.sort_by_key(|instance| {
        let deleting = instance.meta().deletion_timestamp.is_some();
        let is_dependency = Origin::of(instance) == Some(Origin::Dependency);
        let created = instance.meta().creation_timestamp.as_ref().map(|time| time.0);
        (deleting, is_dependency, created, instance.name_any())
    });
    let mut demand = Demand::default();
    let mut open = Vec::new();
    for instance in instances {
        let Some(reference) = instance.spec.extension.as_ref() else { continue };
        let key = ExtensionKey::of(reference, own, platform);
        demand.providers.entry(key.clone()).or_default().push(instance.name_any());
        if Origin::of(instance) != Some(Origin::Dependency) && instance.meta().deletion_timestamp.is_none() {
            match version_request(instance, key.to_string()) {
                Ok(request) => demand.requests.push(request),
                Err(invalid) => demand.invalid.push(invalid),
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

fn version_request(
    instance: &ExtensionInstance,
    extension: String,
) -> Result<VersionRequest, InvalidRequest> {
    let spec = &instance.spec;
    let install_dependencies = spec.dependencies == DependencyPolicy::Install;
    match spec.version.as_deref().map_or(Ok(Range::any()), str::parse) {
        Ok(range) => {
            Ok(VersionRequest { extension, range, channel: spec.channel.clone(), install_dependencies })
        }
        Err(error) => {
            let name = instance.name_any();
            let message = format!("spec.version of ExtensionInstance {name} is invalid: {error}");
            Err(InvalidRequest { extension, message, install_dependencies })
        }
    }
}

/// Returns a published extension with its dependencies named by key. A dependency is looked up in the namespace of the
/// extension first, then in that of the platform.
fn qualified(
    published: &Published,
    own: &str,
    platform: &str,
    namespace: &str,
    registry: &impl PublishedExtensions,
    open: &mut Vec<ExtensionKey>,
) -> Published {
    let mut published = published.clone();
    for dependency in published.versions.iter_mut().flat_map(|version| &mut version.dependencies) {
        let is_local = registry.get(namespace, &dependency.extension).is_some();
        let found_in = if is_local { namespace } else { platform };
        let key = ExtensionKey::in_namespace(found_in, &dependency.extension, own);
        dependency.extension = key.to_string();
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
    fn dependencies_are_found_in_the_own_namespace_then_in_the_platform() {
        let registry = BTreeMap::from([
            (("fleet", "app"), extension(&["db", "net"])),
            (("fleet", "db"), extension(&[])),
            (("system", "db"), extension(&[])),
            (("system", "net"), extension(&["db"])),
        ]);
        let instances = [instance("mine", &json!({"name": "app"}))];
        let found = demand("fleet", "system", &instances, &registry);
        let keys: Vec<_> = found.universe.extensions.keys().map(String::as_str).collect();
        assert_eq!(keys, ["app", "db", "platform/db", "platform/net"]);
        let needs = |key: &str| -> Vec<_> {
            let version = &found.universe.extensions[key].versions[0];
            version.dependencies.iter().map(|dependency| dependency.extension.clone()).collect()
        };
        assert_eq!(needs("app"), ["db", "platform/net"]);
        assert_eq!(needs("platform/net"), ["platform/db"]);
        assert_eq!(found.providers[&ExtensionKey::parse("app")], ["mine"]);
    }

    #[test]
    fn packages_of_catalogs_are_not_confused_with_extensions() {
        let registry = BTreeMap::from([
            (("fleet", "charts/app"), extension(&["db"])),
            (("fleet", "platform/db"), extension(&[])),
            (("system", "charts/app"), extension(&[])),
            (("system", "db"), extension(&[])),
        ]);
        let instances = [
            instance("a", &json!({"name": "app", "catalog": "charts"})),
            instance("b", &json!({"name": "db", "catalog": "platform"})),
            instance("c", &json!({"name": "app", "catalog": "charts", "scope": "Platform"})),
        ];
        let found = demand("fleet", "system", &instances, &registry);
        let keys: Vec<_> = found.universe.extensions.keys().map(String::as_str).collect();
        assert_eq!(keys, ["./platform/db", "charts/app", "platform/charts/app", "platform/db"]);
        let dependency = &found.universe.extensions["charts/app"].versions[0].dependencies[0];
        assert_eq!(dependency.extension, "platform/db", "the Extension of the platform, not the package");
    }

    #[test]
    fn an_extension_that_does_not_exist_is_still_requested() {
        let instances = [instance("a", &json!({"name": "gone", "scope": "Platform"}))];
        let found = demand("fleet", "system", &instances, &BTreeMap::new());
        assert_eq!(found.requests[0].extension, "platform/gone");
        assert!(found.universe.extensions.is_empty());
    }

    #[test]
    fn an_invalid_range_does_not_mean_any_version() {
        let mut invalid = (*instance("a", &json!({"name": "app"}))).clone();
        invalid.spec.version = Some("latest".to_owned());
        let registry = BTreeMap::from([(("fleet", "app"), extension(&[]))]);
        let found = demand("fleet", "system", &[Arc::new(invalid)], &registry);
        assert_eq!(found.requests, []);
        let message = &found.invalid[0].message;
        assert!(message.starts_with("spec.version of ExtensionInstance a is invalid: "), "{message}");
        assert!(message.contains("latest"), "{message}");
        assert_eq!(
            found.providers[&ExtensionKey::parse("app")],
            ["a"],
            "the cluster still counts as one with the extension"
        );
    }
}
