//! The kinds that stand for placements and releases, and where each keeps what commands show.

use kube::api::{ApiResource, GroupVersionKind};

/// What an object stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Puts a package on clusters.
    Placement,
    /// One package on one cluster.
    Release,
}

/// A kind, and the JSON pointers to what its objects say.
#[derive(Debug)]
pub struct Kind {
    pub role: Role,
    pub group: &'static str,
    pub name: &'static str,
    pub plural: &'static str,
    /// What people may call it before a `/`, besides its kind and its plural.
    pub aliases: &'static [&'static str],
    /// Name of the Cluster; of no meaning for placements.
    pub cluster: &'static str,
    /// Name of the package: the first that is there.
    pub package: &'static [&'static str],
    /// Version that is asked for.
    pub version: &'static str,
    /// Namespace and name on the workload cluster; of no meaning for placements.
    pub release: (&'static str, &'static str),
}

pub const VERSION: &str = "v1alpha1";

pub static KINDS: [Kind; 4] = [
    Kind {
        role: Role::Placement,
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
        role: Role::Placement,
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
        role: Role::Release,
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
        role: Role::Release,
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
        self.role == Role::Placement
    }

    /// The shortest word that means this kind.
    pub fn short(&self) -> &'static str {
        self.aliases.first().copied().unwrap_or(self.plural)
    }
}

/// The kinds that a person may mean by a word such as `hcp` or `release`.
pub fn named(word: &str) -> Vec<&'static Kind> {
    let word = word.to_lowercase();
    let means = |kind: &&Kind| {
        kind.aliases.contains(&word.as_str()) || kind.plural == word || kind.name.to_lowercase() == word
    };
    KINDS.iter().filter(means).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_are_defined() {
        for kind in &KINDS {
            let definition = chandler_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind.name);
            let spec = definition.unwrap().spec;
            assert_eq!((&*spec.group, &*spec.names.plural), (kind.group, kind.plural));
            assert_eq!(spec.names.short_names.unwrap()[0], kind.short());
            assert_eq!(spec.versions[0].name, VERSION);
        }
    }

    #[test]
    fn a_word_may_mean_several_kinds() {
        let meant = |word| named(word).iter().map(|kind| kind.name).collect::<Vec<_>>();
        assert_eq!(meant("hcp"), ["HelmChartProxy"]);
        assert_eq!(meant("helmchartproxies"), ["HelmChartProxy"]);
        assert_eq!(meant("ExtensionInstance"), ["ExtensionInstance"]);
        assert_eq!(meant("release"), ["HelmReleaseProxy", "AddonRelease"]);
        assert_eq!(meant("pod"), [] as [&str; 0]);
    }
}
