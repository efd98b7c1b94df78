//! The objects that a run creates on the management clusters.

use chandler_api::capi::CLUSTER_NAME_LABEL;
use chandler_sandbox::assets::KubernetesVersion;
use serde_json::{Value, json};

use crate::{
    action::{ChartVersion, Cluster, Placement, PlacementKind, ReleaseId},
    chart::{self, PublishedVersion},
    model::ClusterModel,
};

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const EXTENSIONS: &str = "chandler.dev/v1alpha1";
const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
const CONTROL_PLANE_KIND: &str = "SandboxControlPlane";
/// The prefix of the names of Helm's release records.
const RECORD_PREFIX: &str = "sh.helm.release.v1.";

pub const CA_SECRET: &str = "ca";

/// A kind of objects: its API version and its name.
pub type Kind = (&'static str, &'static str);

pub const CLUSTERS: Kind = ("cluster.x-k8s.io/v1beta2", "Cluster");
pub const CONTROL_PLANES: Kind = ("controlplane.cluster.x-k8s.io/v1alpha1", CONTROL_PLANE_KIND);

/// The kinds of placements and of their release objects.
pub const MANAGED_KINDS: [Kind; 4] = [
    (ADDONS, "HelmChartProxy"),
    (ADDONS, "HelmReleaseProxy"),
    (EXTENSIONS, "ExtensionInstance"),
    (EXTENSIONS, "AddonRelease"),
];

/// The other kinds with a CRD.
const OTHER_KINDS: [Kind; 3] = [(EXTENSIONS, "Extension"), CLUSTERS, CONTROL_PLANES];

/// Returns all kinds with a CRD of which a management cluster has objects.
pub fn custom_kinds() -> impl Iterator<Item = Kind> {
    MANAGED_KINDS.into_iter().chain(OTHER_KINDS)
}

/// Returns the name of a release, which is also its namespace on the workload cluster. It contains the namespace of the
/// run, so no other release has it, and all requests of the audit log in it are about this release.
pub fn release_name(namespace: &str, placement: Placement) -> String {
    format!("{namespace}-{placement}")
}

/// Returns the release to which a namespace of a workload cluster belongs.
pub fn release_of_namespace(
    namespace: &str,
    cluster: Cluster,
    workload_namespace: &str,
) -> Option<ReleaseId> {
    let placement = Placement::ALL
        .into_iter()
        .find(|placement| release_name(namespace, *placement) == workload_namespace)?;
    Some(ReleaseId { placement, cluster })
}

/// Returns the revision of a release record with this name. `None` means that it is not a release record.
pub fn revision_of_record(name: &str) -> Option<u32> {
    name.strip_prefix(RECORD_PREFIX)?.rsplit_once(".v")?.1.parse().ok()
}

pub fn kubeconfig_secret_name(cluster: Cluster) -> String {
    format!("{}-kubeconfig", cluster.name())
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn ca_secret(namespace: &str, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CA_SECRET, "namespace": namespace},
        "stringData": {"ca.crt": ca_pem},
    })
}

pub fn kubeconfig_secret(namespace: &str, cluster: Cluster, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": kubeconfig_secret_name(cluster), "namespace": namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.name()},
        },
        "stringData": {"value": kubeconfig},
    })
}

pub fn cluster(namespace: &str, cluster: Cluster, model: &ClusterModel) -> Value {
    let labels: serde_json::Map<String, Value> =
        model.selected_by.iter().map(|placement| (placement.to_string(), json!("on"))).collect();
    let (api_version, kind) = CLUSTERS;
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": cluster.name(), "namespace": namespace, "labels": labels,
            "annotations": {"version": chart::annotation(model.annotation)},
        },
        "spec": {
            "paused": model.paused,
            "controlPlaneRef": {
                "apiGroup": CONTROL_PLANE_GROUP, "kind": CONTROL_PLANE_KIND, "name": cluster.name(),
            },
        },
    })
}

/// Returns the status that Cluster API sets once the control plane runs.
pub fn initialized() -> Value {
    json!({"status": {"initialization": {"controlPlaneInitialized": true, "infrastructureProvisioned": true}}})
}

/// Returns the object that describes the control plane of a cluster.
pub fn control_plane(namespace: &str, cluster: Cluster, version: KubernetesVersion) -> Value {
    let (api_version, kind) = CONTROL_PLANES;
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": cluster.name(), "namespace": namespace, "labels": {CLUSTER_NAME_LABEL: cluster.name()},
        },
        "spec": {"version": version.to_string(), "nodes": 0},
    })
}

/// Returns the status that a control-plane provider sets once the API server of this version runs.
pub fn running(version: KubernetesVersion) -> Value {
    json!({"status": {"version": version.to_string()}})
}

/// Returns the Extension that the ExtensionInstance of a placement installs. Each has its own, because the instances of an
/// Extension share its version on a cluster.
pub fn extension(namespace: &str, placement: Placement, repository: &str) -> Value {
    let version = |published: PublishedVersion| {
        let kubernetes = published.kubernetes?;
        Some(json!({
            "version": published.to_string(), "kubernetes": format!("1.{}.x", kubernetes.minor()),
            "source": {"repository": repository, "chart": chart::NAME},
        }))
    };
    let versions: Vec<Value> = PublishedVersion::all().filter_map(version).collect();
    json!({
        "apiVersion": EXTENSIONS, "kind": "Extension",
        "metadata": {"name": placement.to_string(), "namespace": namespace},
        "spec": {"lifecycle": "Kubernetes", "versions": versions},
    })
}

/// Returns the kind of a placement.
pub fn kind_of(placement: Placement) -> Kind {
    match placement.kind() {
        PlacementKind::HelmChartProxy => (ADDONS, "HelmChartProxy"),
        PlacementKind::ExtensionInstance => (EXTENSIONS, "ExtensionInstance"),
    }
}

/// Returns a new placement.
pub fn placement(namespace: &str, placement: Placement, repository: &str) -> Value {
    let selector = json!({"matchLabels": {placement.to_string(): "on"}});
    let name = release_name(namespace, placement);
    let mut spec = match placement.kind() {
        PlacementKind::HelmChartProxy => json!({
            "clusterSelector": selector, "repoURL": repository, "chartName": chart::NAME,
            "releaseName": name, "namespace": name,
            "tlsConfig": {"caSecret": {"name": CA_SECRET, "namespace": namespace}},
        }),
        PlacementKind::ExtensionInstance => json!({
            "extension": {"name": placement.to_string()}, "clusters": {"selector": selector},
            "release": {"name": name, "namespace": name},
        }),
    };
    for (field, value) in [values(placement, 0), version(placement, ChartVersion::First)] {
        spec[field] = Value::String(value);
    }
    let (api_version, kind) = kind_of(placement);
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": placement.to_string(), "namespace": namespace}, "spec": spec,
    })
}

/// Returns the field of the spec that contains the values of a placement, and its content.
pub fn values(placement: Placement, value: u32) -> (&'static str, String) {
    let field = match placement.kind() {
        PlacementKind::HelmChartProxy => "valuesTemplate",
        PlacementKind::ExtensionInstance => "parametersTemplate",
    };
    (field, chart::values_template(placement, value))
}

/// Returns the field of the spec that contains the version of a placement, and its content.
pub fn version(placement: Placement, version: ChartVersion) -> (&'static str, String) {
    let content = match placement.kind() {
        PlacementKind::HelmChartProxy => PublishedVersion::independent(version).to_string(),
        PlacementKind::ExtensionInstance => chart::version_range(version),
    };
    ("version", content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_a_release_identifies_it() {
        let name = release_name("run-1", Placement(2));
        let release = ReleaseId { placement: Placement(2), cluster: Cluster::Bravo };
        assert_eq!(release_of_namespace("run-1", Cluster::Bravo, &name), Some(release));
        assert_eq!(release_of_namespace("run-2", Cluster::Bravo, &name), None);
        assert_eq!(release_of_namespace("run-1", Cluster::Bravo, "kube-system"), None);
    }

    #[test]
    fn records_name_their_revision() {
        assert_eq!(revision_of_record("sh.helm.release.v1.run-1-p0.v12"), Some(12));
        assert_eq!(revision_of_record("run-1-p0.v12"), None);
    }

    #[test]
    fn placements_of_both_kinds_have_values_and_a_version() {
        let fields = |number| {
            let object = placement("run-1", Placement(number), "https://127.0.0.1:1");
            (object["kind"].clone(), object["spec"]["version"].clone())
        };
        assert_eq!(fields(0), (json!("HelmChartProxy"), json!("1.0.0")));
        assert_eq!(fields(1), (json!("ExtensionInstance"), json!("34.0.0 || 35.0.0")));
        for placement in Placement::ALL {
            let object = super::placement("run-1", placement, "https://127.0.0.1:1");
            let (field, content) = values(placement, 0);
            assert_eq!(object["spec"][field], content);
        }
    }

    #[test]
    fn an_extension_has_versions_for_each_kubernetes_version() {
        let extension = extension("run-1", Placement(1), "https://127.0.0.1:1");
        let versions = extension["spec"]["versions"].as_array().unwrap();
        let of: Vec<_> = versions.iter().map(|one| (&one["version"], &one["kubernetes"])).collect();
        assert_eq!(of.len(), 4);
        assert_eq!(of[0], (&json!("34.0.0"), &json!("1.34.x")));
        assert_eq!(of[3], (&json!("35.1.0"), &json!("1.35.x")));
    }
}
