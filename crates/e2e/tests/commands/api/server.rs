//! A real API server with Chandler's CRDs.

use std::{path::PathBuf, time::Duration};

use chandler_sandbox::{apply, plane::Plane, testing};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::OnceCell};

use super::objects::{group, is_cluster_scoped, object};

static SHARED: OnceCell<(Plane, Runtime)> = OnceCell::const_new();

pub struct Server {
    client: Client,
    /// Set if the server belongs to a single test and stops with it.
    plane: Option<Plane>,
}

impl Server {
    /// Returns the server that is shared by all tests that do not change CRDs.
    pub async fn shared() -> Self {
        let (plane, _) = SHARED.get_or_init(shared_plane).await;
        Self { client: plane.client().await.unwrap(), plane: None }
    }

    /// Starts a server for a single test, without CRDs.
    pub async fn dedicated() -> Self {
        let plane = testing::bare_plane().await.unwrap();
        Self { client: plane.client().await.unwrap(), plane: Some(plane) }
    }

    pub async fn install(&self, crds: &[CustomResourceDefinition]) {
        install(&self.client, crds).await;
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group(kind), "v1alpha1", kind));
        if is_cluster_scoped(kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::default_namespaced_with(self.client.clone(), &resource)
        }
    }

    /// Returns the path of the kubeconfig of a dedicated server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.as_ref().unwrap().kubeconfig_path()
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub async fn create(&self, object: &Value) -> Result<Value, String> {
        self.post(object, false).await
    }

    /// Creates the object as a dry run.
    pub async fn dry_run_create(&self, object: &Value) -> Result<Value, String> {
        self.post(object, true).await
    }

    async fn post(&self, object: &Value, dry_run: bool) -> Result<Value, String> {
        let api = self.api(object["kind"].as_str().unwrap());
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        object_or_message(api.create(&PostParams { dry_run, field_manager: None }, &object).await)
    }

    /// Applies a merge patch.
    pub async fn patch(&self, object: &Value, patch: Value) -> Result<Value, String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.api(object["kind"].as_str().unwrap());
        object_or_message(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Waits until the object is rejected: changes of CRDs take effect with a delay.
    pub async fn wait_rejected(&self, object: &Value) {
        for _ in 0..300 {
            if self.dry_run_create(object).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("still accepted: {object:#}");
    }
}

/// Returns the object, or the message of the API error.
pub fn object_or_message(result: kube::Result<DynamicObject>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// Starts the server on its own runtime, because the runtime of a test ends with the test.
async fn shared_plane() -> (Plane, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let start = async {
        let plane = testing::bare_plane().await.unwrap();
        install(&plane.client().await.unwrap(), &chandler_api::crds()).await;
        plane
    };
    (runtime.spawn(start).await.unwrap(), runtime)
}

/// Installs CRDs and waits until they are served.
async fn install(client: &Client, crds: &[CustomResourceDefinition]) {
    for crd in crds {
        apply::apply(client, &serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    let server = Server { client: client.clone(), plane: None };
    for crd in crds {
        let object = object(&crd.spec.names.kind, &json!({}));
        let mut last = None;
        for _ in 0..300 {
            last = server.dry_run_create(&object).await.err();
            if last.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(last, None, "{} is not served", crd.spec.names.kind);
    }
}
