//! Objects on the clusters of a test. Their requests block, so that they can be made when a test ends.

use std::thread;

use chandler_sandbox::{dynamic_api, plane::Plane, provider::cluster_resource};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
};
use serde_json::Value;

use crate::world::World;

/// API version and kind.
type Kind = (&'static str, &'static str);

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const CHANDLER: &str = "chandler.dev/v1alpha1";
const EVENT: Kind = ("v1", "Event");
/// Kinds whose conditions Chandler writes.
const REPORTING: [Kind; 10] = [
    ("cluster.x-k8s.io/v1beta2", "Cluster"),
    (ADDONS, "HelmChartProxy"),
    (ADDONS, "HelmReleaseProxy"),
    (CHANDLER, "Extension"),
    (CHANDLER, "ExtensionCatalog"),
    (CHANDLER, "ExtensionInstance"),
    (CHANDLER, "AddonRelease"),
    (CHANDLER, "Source"),
    (CHANDLER, "Sync"),
    (CHANDLER, "ClusterTunnel"),
];

impl World {
    /// Returns the objects whose conditions Chandler writes.
    pub fn reporting_objects(&self) -> kube::Result<Vec<Value>> {
        self.list(&REPORTING)
    }

    pub fn events(&self) -> kube::Result<Vec<Value>> {
        self.list(&[EVENT])
    }

    pub fn secret_objects(&self) -> kube::Result<Vec<Value>> {
        self.list(&[("v1", "Secret")])
    }

    fn list(&self, kinds: &[Kind]) -> kube::Result<Vec<Value>> {
        block_on(self.sandbox.management(), async |client| {
            let mut found = Vec::new();
            for (api_version, kind) in kinds {
                let api = dynamic_api::namespaced(&client, &self.namespace, api_version, kind);
                for object in api.list(&ListParams::default()).await? {
                    let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                    object["kind"] = (*kind).into();
                    found.push(object);
                }
            }
            Ok(found)
        })
    }

    /// Deletes the Clusters of the test, and does not wait for it.
    pub fn delete_clusters(&self) -> kube::Result<()> {
        block_on(self.sandbox.management(), async |client| {
            let clusters: Api<DynamicObject> =
                Api::namespaced_with(client, &self.namespace, &cluster_resource());
            clusters.delete_collection(&DeleteParams::default(), &ListParams::default()).await.map(drop)
        })
    }

    /// Returns the revisions of a release in namespace `default`, and their statuses.
    pub fn history(&self, plane: &Plane, release: &str) -> Vec<(u64, String)> {
        let found = block_on(plane, async |client| {
            let secrets: Api<Secret> = Api::namespaced(client, "default");
            secrets.list(&ListParams::default().labels(&format!("owner=helm,name={release}"))).await
        });
        let revision = |secret: Secret| {
            let label = |name: &str| secret.labels()[name].clone();
            (label("version").parse().unwrap(), label("status"))
        };
        let mut revisions: Vec<_> = found.unwrap().into_iter().map(revision).collect();
        revisions.sort();
        revisions
    }
}

/// Waits for requests on a thread of its own: that of the test drives the runtime of its other clients.
fn block_on<T: Send>(
    plane: &Plane,
    requests: impl AsyncFnOnce(Client) -> kube::Result<T> + Send,
) -> kube::Result<T> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = plane.client().await.map_err(|error| kube::Error::Service(error.into()))?;
            requests(client).await
        })
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}
