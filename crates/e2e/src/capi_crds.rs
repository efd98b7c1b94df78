//! The real CRDs of Cluster API, for management clusters on which its core manager does not run.

use std::path::Path;

use chandler_sandbox::{apply, crds, testing};
use kube::{
    Client,
    api::{ApiResource, GroupVersionKind},
};

/// The kinds of the core provider that clusterctl and bootstrap providers read, with the files of their CRDs.
const CORE: [(&str, &str); 3] = [
    ("Cluster", "cluster.x-k8s.io_clusters.yaml"),
    ("Machine", "cluster.x-k8s.io_machines.yaml"),
    ("MachinePool", "cluster.x-k8s.io_machinepools.yaml"),
];

/// Installs the CRDs of the core provider. That of Cluster replaces the one without a schema.
pub async fn install_core(client: &Client) {
    let folder = testing::assets().await.unwrap().capi_config().join("crd/bases");
    install(client, &folder, &CORE).await;
}

/// Applies CRDs, each given by its kind and its file, whose name begins with the group. Waits until their version `v1beta2` is
/// served. No webhook converts other versions.
pub async fn install(client: &Client, folder: &Path, files: &[(&str, &str)]) {
    for (kind, file) in files {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        apply::apply_all(client, &text).await.unwrap();
        let (group, _) = file.split_once('_').unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind));
        crds::wait_served(client, &resource).await.unwrap();
    }
}
