//! Installs Chandler's CRDs and RBAC on a management cluster.

use chandler_sandbox::apply;
use futures::future::join_all;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::wait::eventually;

/// Applies the CRDs and `deploy/rbac.yaml`, and waits until the API server serves all of the new kinds.
pub async fn install(client: Client) {
    let crds = chandler_api::crds();
    let crds: Vec<_> = crds.iter().map(|crd| (&crd.spec, serde_json::to_value(crd).unwrap())).collect();
    join_all(crds.iter().map(|(_, crd)| async { apply::apply(&client, crd).await.unwrap() })).await;
    apply::apply_all(&client, include_str!("../../../deploy/rbac.yaml")).await.unwrap();
    for (spec, _) in &crds {
        let names = &spec.names;
        for version in spec.versions.iter().filter(|version| version.served) {
            let kind = GroupVersionKind::gvk(&spec.group, &version.name, &names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            eventually(&format!("{} are served", names.plural), || async {
                all.list(&ListParams::default().limit(1)).await.ok()
            })
            .await;
        }
    }
}
