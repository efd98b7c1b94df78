//! The programs that the sandbox runs and the Go modules that they are built from. The `go.mod` files pin all versions.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A program that the sandbox or a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binary {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    Kwok,
    CapiManager,
    Helm,
    Registry,
    Cosign,
    Clusterctl,
    CapiOperator,
    FleetController,
    FleetAgent,
    Versitygw,
    CapiClient,
    KubeadmBootstrap,
}

/// A Go module in `modules/` that pins the versions of one or more programs.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    pub go_mod: &'static str,
    pub go_sum: &'static str,
    /// Path and content of the sources of programs in the module itself. The others are in other modules.
    pub sources: &'static [(&'static str, &'static str)],
    /// Linker flags in addition to those of every program.
    pub ldflags: &'static str,
}

/// A Kubernetes version that the sandbox can run: one patch release of each supported minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum KubernetesVersion {
    #[default]
    V1_34,
    V1_35,
    V1_36,
}

macro_rules! module {
    ($name:literal, $ldflags:expr) => {
        Module {
            name: $name,
            go_mod: include_str!(concat!("../modules/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../modules/", $name, "/go.sum")),
            sources: &[],
            ldflags: $ldflags,
        }
    };
}

static KUBERNETES_1_34: Module = module!(
    "kubernetes-1.34",
    "-X k8s.io/component-base/version.gitVersion=v1.34.4 \
     -X k8s.io/component-base/version.gitMajor=1 \
     -X k8s.io/component-base/version.gitMinor=34"
);
static KUBERNETES_1_35: Module = module!(
    "kubernetes-1.35",
    "-X k8s.io/component-base/version.gitVersion=v1.35.4 \
     -X k8s.io/component-base/version.gitMajor=1 \
     -X k8s.io/component-base/version.gitMinor=35"
);
static KUBERNETES_1_36: Module = module!(
    "kubernetes-1.36",
    "-X k8s.io/component-base/version.gitVersion=v1.36.3 \
     -X k8s.io/component-base/version.gitMajor=1 \
     -X k8s.io/component-base/version.gitMinor=36"
);
static HELM: Module = Module {
    sources: &[
        ("cosign/main.go", include_str!("../modules/helm/cosign/main.go")),
        ("registry/main.go", include_str!("../modules/helm/registry/main.go")),
    ],
    ..module!("helm", "")
};
static FLEET: Module = module!("fleet", "");
static VERSITYGW: Module = module!("versitygw", "");
static CLUSTER_API: Module = Module {
    sources: &[("main.go", include_str!("../modules/cluster-api/main.go"))],
    ..module!("cluster-api", "")
};

/// The module that contains the Cluster API manifests.
pub const CLUSTER_API_MODULE: &str = "sigs.k8s.io/cluster-api";
/// The module that contains the stages that kwok runs.
pub const KWOK_MODULE: &str = "sigs.k8s.io/kwok";
/// The files of kwok's `kustomize/stage/fast`: Nodes and Pods become Ready immediately, and Nodes renew their Leases.
pub const KWOK_STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

impl Binary {
    pub const ALL: [Self; 17] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kwok,
        Self::CapiManager,
        Self::Helm,
        Self::Registry,
        Self::Cosign,
        Self::Clusterctl,
        Self::CapiOperator,
        Self::FleetController,
        Self::FleetAgent,
        Self::Versitygw,
        Self::CapiClient,
        Self::KubeadmBootstrap,
    ];

    /// The programs that install Cluster API providers, which few tests need.
    pub const PROVIDER_INSTALLERS: [Self; 2] = [Self::Clusterctl, Self::CapiOperator];

    /// The programs that only ignored tests run. They are built when such a test asks for them.
    pub const ON_DEMAND: [Self; 5] =
        [Self::FleetController, Self::FleetAgent, Self::Versitygw, Self::CapiClient, Self::KubeadmBootstrap];

    /// The programs whose version is checked against the Kubernetes version of the cluster when they come from
    /// [`crate::ASSETS_VARIABLE`] or [`crate::KUBEBUILDER_VARIABLE`].
    pub const CONTROL_PLANE: [Self; 3] =
        [Self::KubeApiserver, Self::KubeControllerManager, Self::KubeScheduler];

    /// The programs that a sandbox with Cluster API needs.
    pub const SANDBOX: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kwok,
        Self::CapiManager,
    ];

    /// The programs that a control plane with controllers, scheduler and Nodes needs.
    pub const FULL_PLANE: [Self; 5] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::KubeScheduler, Self::Kwok];

    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::CapiManager => "capi-manager",
            Self::Helm => "helm",
            Self::Registry => "registry",
            Self::Cosign => "cosign",
            Self::Clusterctl => "clusterctl",
            Self::CapiOperator => "capi-operator",
            Self::FleetController => "fleetcontroller",
            Self::FleetAgent => "fleetagent",
            Self::Versitygw => "versitygw",
            Self::CapiClient => "capi-client",
            Self::KubeadmBootstrap => "kubeadm-bootstrap",
        }
    }

    /// Returns the name to show while the program is built, with the Kubernetes version if there is one build per
    /// version.
    pub fn title(self, kubernetes: KubernetesVersion) -> String {
        if kubernetes.programs().contains(&self) { format!("{self} {kubernetes}") } else { self.to_string() }
    }

    /// Returns the import path of the program's main package.
    pub fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::CapiManager => CLUSTER_API_MODULE,
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::Registry => "chandler.dev/sandbox/helm/registry",
            Self::Cosign => "chandler.dev/sandbox/helm/cosign",
            Self::Clusterctl => "sigs.k8s.io/cluster-api/cmd/clusterctl",
            Self::CapiOperator => "sigs.k8s.io/cluster-api-operator/cmd",
            Self::FleetController => "github.com/rancher/fleet/cmd/fleetcontroller",
            Self::FleetAgent => "github.com/rancher/fleet/cmd/fleetagent",
            Self::Versitygw => "github.com/versity/versitygw/cmd/versitygw",
            Self::CapiClient => "chandler.dev/sandbox/cluster-api",
            Self::KubeadmBootstrap => "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
        }
    }

    /// Returns the module that pins the program, for control planes of the given Kubernetes version.
    pub fn module(self, kubernetes: KubernetesVersion) -> &'static Module {
        match self {
            _ if kubernetes.programs().contains(&self) => kubernetes.module(),
            Self::KubeApiserver
            | Self::Etcd
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubectl
            | Self::Kwok
            | Self::CapiManager
            | Self::Clusterctl
            | Self::CapiOperator => KubernetesVersion::default().module(),
            Self::Helm | Self::Registry | Self::Cosign => &HELM,
            Self::FleetController | Self::FleetAgent => &FLEET,
            Self::Versitygw => &VERSITYGW,
            Self::CapiClient | Self::KubeadmBootstrap => &CLUSTER_API,
        }
    }

    /// Returns the version of the program, for control planes of the given Kubernetes version. `None` if its module does not pin
    /// that of another module.
    pub fn version(self, kubernetes: KubernetesVersion) -> Option<String> {
        let package = self.package();
        let module = self.module(kubernetes);
        let mut pins = module.go_mod.lines().filter_map(pin);
        let is_in = |path: &str| {
            package.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        pins.rfind(|(path, _)| is_in(path)).map(|(_, version)| version.to_owned())
    }

    /// Returns how much the program adds to the duration of a first build on two cores, measured after the programs that
    /// precede it in [`Binary::ALL`] were built.
    pub fn usual_build_time(self) -> Duration {
        Duration::from_secs(match self {
            Self::KubeApiserver => 300,
            Self::FleetController => 240,
            // Not measured: estimated from the number of its packages.
            Self::Versitygw => 120,
            Self::Helm | Self::Cosign => 75,
            Self::Kwok | Self::Clusterctl => 40,
            Self::Etcd
            | Self::KubeControllerManager
            | Self::CapiManager
            | Self::Kubectl
            | Self::CapiOperator
            | Self::Registry => 30,
            // The last two are not measured: the core manager has compiled most of their packages.
            Self::KubeScheduler | Self::FleetAgent | Self::CapiClient | Self::KubeadmBootstrap => 15,
        })
    }
}

/// Returns the module and the version that a line of a `go.mod` requires, or that replace another.
fn pin(line: &str) -> Option<(&str, &str)> {
    let line = line.trim().trim_start_matches("require ").trim_start_matches("replace ");
    let (module, version) = match line.split_once(" => ") {
        Some((module, replacement)) => (module, replacement.split_once(' ')?.1),
        None => line.split_once(' ')?,
    };
    let version = version.split_whitespace().next().filter(|version| version.starts_with('v'))?;
    Some((module.split_whitespace().next()?, version))
}

impl fmt::Display for Binary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.file_name())
    }
}

impl KubernetesVersion {
    /// All versions, oldest first.
    pub const SUPPORTED: [Self; 3] = [Self::V1_34, Self::V1_35, Self::V1_36];

    /// The versions that most tests need, oldest first. Programs of the others are built when an ignored test asks for them.
    pub const PREBUILT: [Self; 2] = [Self::V1_34, Self::V1_35];

    /// Returns the programs that are built for this version. Those of the default version, which is the oldest, serve for the
    /// rest: the controller manager and the scheduler also work with an API server that is one minor newer.
    pub fn programs(self) -> &'static [Binary] {
        match self {
            Self::V1_34 | Self::V1_35 => &[Binary::KubeApiserver],
            Self::V1_36 => &Binary::CONTROL_PLANE,
        }
    }

    pub fn minor(self) -> u64 {
        match self {
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
        }
    }

    fn module(self) -> &'static Module {
        match self {
            Self::V1_34 => &KUBERNETES_1_34,
            Self::V1_35 => &KUBERNETES_1_35,
            Self::V1_36 => &KUBERNETES_1_36,
        }
    }

    /// Returns the folder of this version's API server in [`crate::ASSETS_VARIABLE`].
    pub(super) fn folder(self) -> &'static str {
        self.module().name
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1_34 => "v1.34.4",
            Self::V1_35 => "v1.35.4",
            Self::V1_36 => "v1.36.3",
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The sandbox does not support the requested Kubernetes version.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox supports only Kubernetes {}, not {requested}", supported())]
pub struct UnsupportedVersion {
    requested: String,
}

fn supported() -> String {
    KubernetesVersion::SUPPORTED.map(|version| version.to_string()).join(", ")
}

impl FromStr for KubernetesVersion {
    type Err = UnsupportedVersion;

    /// Parses a version with its patch, with or without the leading `v`. The patch must match, because callers compare
    /// the requested version with the running one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::SUPPORTED
            .into_iter()
            .find(|version| version.name().trim_start_matches('v') == text.trim_start_matches('v'))
            .ok_or_else(|| UnsupportedVersion { requested: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_versions_are_accepted() {
        for (text, accepted) in [
            ("v1.34.4", Some(KubernetesVersion::V1_34)),
            ("1.35.4", Some(KubernetesVersion::V1_35)),
            ("v1.36.3", Some(KubernetesVersion::V1_36)),
            ("v1.36.0", None),
            ("v1.34.9", None),
            ("v1.33.4", None),
            ("v2.34.4", None),
            ("latest", None),
        ] {
            assert_eq!(text.parse::<KubernetesVersion>().ok(), accepted, "{text}");
        }
    }

    #[test]
    fn the_error_lists_the_supported_versions() {
        let error = "v1.30.0".parse::<KubernetesVersion>().unwrap_err().to_string();
        for expected in ["v1.34.4", "v1.35.4", "v1.36.3", "not v1.30.0"] {
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_module_pins_the_packages_built_from_it() {
        for version in KubernetesVersion::SUPPORTED {
            for binary in Binary::ALL {
                let module = binary.module(version);
                let (_, own) = module.go_mod.split_once("module ").unwrap();
                let is_own = binary.package().starts_with(own.lines().next().unwrap());
                assert!(is_own || module.go_mod.contains(binary.package()), "{binary} {version}");
            }
        }
    }

    #[test]
    fn versions_are_those_of_the_pins() {
        let version = |binary: Binary| binary.version(KubernetesVersion::V1_34);
        assert_eq!(version(Binary::KubeApiserver).as_deref(), Some("v1.34.4"));
        assert!(version(Binary::Etcd).is_some_and(|version| version.starts_with("v3.")));
        // The version that replaces the required one.
        let capi =
            KUBERNETES_1_34.go_mod.lines().filter_map(|line| line.split_once("cluster-api => ")).next_back();
        let capi = capi.and_then(|(_, replacement)| replacement.split_once(' ')).map(|(_, version)| version);
        assert_eq!(version(Binary::CapiManager).as_deref(), capi);
        assert_eq!(version(Binary::CapiClient), None);
    }

    #[test]
    fn each_version_matches_the_pin_and_the_linker_flags_of_its_module() {
        for version in KubernetesVersion::SUPPORTED {
            let module = version.module();
            assert!(module.go_mod.contains(&format!("k8s.io/kubernetes {version}")));
            assert!(module.ldflags.contains(&format!("gitVersion={version}")));
        }
    }

    #[test]
    fn a_controller_manager_is_at_most_one_minor_older_than_its_api_server() {
        for version in KubernetesVersion::SUPPORTED {
            let is_own = version.programs().contains(&Binary::KubeControllerManager);
            let built_from = if is_own { version } else { KubernetesVersion::default() };
            assert_eq!(Binary::KubeControllerManager.module(version).name, built_from.module().name);
            assert!(version.minor() - built_from.minor() <= 1, "{version}");
        }
    }
}
