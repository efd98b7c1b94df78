//! A real API server that serves the kinds.

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

use super::objects::{group, object};

static SHARED: OnceCell<(Plane, Runtime)> = OnceCell::const_new();

pub struct Server {
    client: Client,
    /// A server of the test's own ends with it.
    plane: Option<Plane>,
}

impl Server {
    /// The server that all tests share which leave the definitions alone.
    pub async fn shared() -> Self {
        let (plane, _) = SHARED.get_or_init(shared_plane).await;
        Self { client: plane.client().await.unwrap(), plane: None }
    }

    /// A server of the test's own, without any kind.
    pub async fn own() -> Self {
        let plane = testing::bare_plane().await.unwrap();
        Self { client: plane.client().await.unwrap(), plane: Some(plane) }
    }

    pub async fn install(&self, definitions: &[CustomResourceDefinition]) {
        install(&self.client, definitions).await;
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group(kind), "v1alpha1", kind);
        Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// For programs that talk to the test's own server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.as_ref().unwrap().kubeconfig_path()
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub async fn create(&self, object: &Value) -> Result<Value, String> {
        self.post(object, false).await
    }

    /// What would become of the object.
    pub async fn try_create(&self, object: &Value) -> Result<Value, String> {
        self.post(object, true).await
    }

    async fn post(&self, object: &Value, dry_run: bool) -> Result<Value, String> {
        let api = self.api(object["kind"].as_str().unwrap());
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        answer(api.create(&PostParams { dry_run, field_manager: None }, &object).await)
    }

    /// A merge patch.
    pub async fn change(&self, object: &Value, patch: Value) -> Result<Value, String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.api(object["kind"].as_str().unwrap());
        answer(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Waits until the object is refused: definitions take effect a moment after they are written.
    pub async fn until_refused(&self, object: &Value) {
        for _ in 0..300 {
            if self.try_create(object).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("still accepted: {object:#}");
    }
}

/// The object as the server returns it, or why it was refused.
pub fn answer(result: kube::Result<DynamicObject>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// The plane lives on a runtime of its own, because each test's runtime ends with the test.
async fn shared_plane() -> (Plane, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let start = async {
        let plane = testing::bare_plane().await.unwrap();
        install(&plane.client().await.unwrap(), &chandler_api::crds()).await;
        plane
    };
    (runtime.spawn(start).await.unwrap(), runtime)
}

async fn install(client: &Client, definitions: &[CustomResourceDefinition]) {
    for definition in definitions {
        apply::apply(client, &serde_json::to_value(definition).unwrap()).await.unwrap();
    }
    let server = Server { client: client.clone(), plane: None };
    for definition in definitions {
        let object = object(&definition.spec.names.kind, &json!({}));
        let mut last = None;
        for _ in 0..300 {
            last = server.try_create(&object).await.err();
            if last.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(last, None, "{} is not served", definition.spec.names.kind);
    }
}
