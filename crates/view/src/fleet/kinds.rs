//! The kinds of placements and releases, and where their objects store the fields that commands show.

use chandler_api::extensions::PlacementKindName;
use kube::api::{ApiResource, GroupVersionKind};

/// The model that represents the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Installs a package on the clusters that it selects.
    Placement(PlacementKindName),
    /// A package on one cluster.
    Release,
}

/// A kind, with JSON pointers to fields of its objects.
#[derive(Debug)]
pub struct Kind {
    pub model: Model,
    pub group: &'static str,
    pub name: &'static str,
    pub plural: &'static str,
    /// Names that users may type before a `/`, besides the kind and the plural. The first is the short name.
    pub aliases: &'static [&'static str],
    /// Name of the Cluster. Unused for placements.
    pub cluster: &'static str,
    /// Name of the package: the first field that is set.
    pub package: &'static [&'static str],
    /// Requested version.
    pub version: &'static str,
    /// Namespace and name of the release on the workload cluster. Unused for placements.
    pub release: (&'static str, &'static str),
}

pub const VERSION: &str = "v1alpha1";

pub static KINDS: [Kind; 4] = [
    Kind {
        model: Model::Placement(PlacementKindName::HelmChartProxy),
        group: "addons.cluster.x-k8s.io",
        name: "HelmChartProxy",
        plural: "helmchartproxies",
        aliases: &["hcp"],
        cluster: "",
        package: &["/spec/chartName"],
        version: "/spec/version",
        release: ("/spec/namespace", "/spec/releaseName"),
    },
    Kind {
        model: Model::Placement(PlacementKindName::ExtensionInstance),
        group: "chandler.dev",
        name: "ExtensionInstance",
        plural: "extensioninstances",
        aliases: &["exti", "instance"],
        cluster: "",
        package: &["/spec/extension/name", "/spec/source/chart", "/metadata/name"],
        version: "/spec/version",
        release: ("/spec/release/namespace", "/spec/release/name"),
    },
    Kind {
        model: Model::Release,
        group: "addons.cluster.x-k8s.io",
        name: "HelmReleaseProxy",
        plural: "helmreleaseproxies",
        aliases: &["hrp", "release"],
        cluster: "/spec/clusterRef/name",
        package: &["/spec/chartName"],
        version: "/spec/version",
        release: ("/spec/namespace", "/spec/releaseName"),
    },
    Kind {
        model: Model::Release,
        group: "chandler.dev",
        name: "AddonRelease",
        plural: "addonreleases",
        aliases: &["ar", "release"],
        cluster: "/spec/cluster",
        package: &["/spec/extension", "/spec/source/chart", "/metadata/name"],
        version: "/spec/version",
        release: ("/spec/release/namespace", "/spec/release/name"),
    },
];

impl Kind {
    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, VERSION, self.name);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    pub fn is_placement(&self) -> bool {
        matches!(self.model, Model::Placement(_))
    }

    /// Returns the shortest name of this kind.
    pub fn short_name(&self) -> &'static str {
        self.aliases.first().copied().unwrap_or(self.plural)
    }
}

/// Returns the kinds with this alias, plural or kind name, for example `hcp` or `release`. Ignores case.
pub fn find_kinds(name: &str) -> Vec<&'static Kind> {
    let name = name.to_lowercase();
    let matches = |kind: &&Kind| {
        kind.aliases.contains(&name.as_str()) || kind.plural == name || kind.name.to_lowercase() == name
    };
    KINDS.iter().filter(matches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_match_the_crds() {
        for kind in &KINDS {
            let crd = chandler_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind.name);
            let spec = crd.unwrap().spec;
            assert_eq!((&*spec.group, &*spec.names.plural), (kind.group, kind.plural));
            assert_eq!(spec.names.short_names.unwrap()[0], kind.short_name());
            assert_eq!(spec.versions[0].name, VERSION);
            if let Model::Placement(name) = kind.model {
                assert_eq!(name.to_string(), kind.name);
            }
        }
    }

    #[test]
    fn an_alias_may_match_several_kinds() {
        let find = |name| find_kinds(name).iter().map(|kind| kind.name).collect::<Vec<_>>();
        assert_eq!(find("hcp"), ["HelmChartProxy"]);
        assert_eq!(find("helmchartproxies"), ["HelmChartProxy"]);
        assert_eq!(find("ExtensionInstance"), ["ExtensionInstance"]);
        assert_eq!(find("release"), ["HelmReleaseProxy", "AddonRelease"]);
        assert_eq!(find("pod"), [] as [&str; 0]);
    }
}
