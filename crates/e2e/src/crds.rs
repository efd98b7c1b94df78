//! Installs Chandler's CRDs and RBAC on a management cluster.

use chandler_api::addons::HelmReleaseProxy;
use chandler_sandbox::apply;
use kube::{Api, Client, api::ListParams};

use crate::wait::eventually;

/// Applies the CRDs and `deploy/rbac.yaml`, and waits until the API server serves the new kinds.
pub async fn install(client: Client) {
    for crd in chandler_api::crds() {
        apply::apply(&client, &serde_json::to_value(&crd).unwrap()).await.unwrap();
    }
    apply::apply_all(&client, include_str!("../../../deploy/rbac.yaml")).await.unwrap();
    let all: Api<HelmReleaseProxy> = Api::all(client);
    eventually("the CRDs are served", || async { all.list(&ListParams::default().limit(1)).await.ok() })
        .await;
}
