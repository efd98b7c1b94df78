//! Installs Chandler's CRDs and RBAC on a management cluster.

use chandler_sandbox::apply;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::wait::eventually;

/// Applies the CRDs and `deploy/rbac.yaml`, and waits until the API server serves all of the new kinds.
pub async fn install(client: Client) {
    let crds = chandler_api::crds();
    for crd in &crds {
        apply::apply(&client, &serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    apply::apply_all(&client, include_str!("../../../deploy/rbac.yaml")).await.unwrap();
    for crd in &crds {
        let names = &crd.spec.names;
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            eventually(&format!("{} are served", names.plural), || async {
                all.list(&ListParams::default().limit(1)).await.ok()
            })
            .await;
        }
    }
}
