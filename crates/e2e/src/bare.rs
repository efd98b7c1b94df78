//! A management cluster of a test's own, with nothing but the kinds: for what would disturb others, and for numbers.

use std::{path::PathBuf, process::Command};

use chandler_api::addons::HelmReleaseProxy;
use chandler_sandbox::{
    apply,
    plane::Plane,
    process::{Child, Spec},
    service_account, testing,
};
use kube::{Api, Client, api::ListParams};
use serde_json::json;

use crate::{programs, wait::eventually};

pub struct Bare {
    pub plane: Plane,
    pub client: Client,
    dir: PathBuf,
}

impl Bare {
    pub async fn new(name: &str) -> Self {
        let plane = testing::bare_plane().await.unwrap();
        let client = plane.client().await.unwrap();
        let dir = testing::fresh_dir(name).await.unwrap();
        apply::apply(&client, &cluster_definition()).await.unwrap();
        for definition in chandler_api::crds() {
            apply::apply(&client, &serde_json::to_value(&definition).unwrap()).await.unwrap();
        }
        apply::apply_all(&client, include_str!("../../../deploy/rbac.yaml")).await.unwrap();
        let all: Api<HelmReleaseProxy> = Api::all(client.clone());
        eventually("the kinds are served", || async { all.list(&ListParams::default().limit(1)).await.ok() })
            .await;
        let config =
            service_account::kubeconfig(&plane, "chandler-system", "chandler-manager").await.unwrap();
        std::fs::write(dir.join("kubeconfig"), config).unwrap();
        Self { plane, client, dir }
    }

    /// Runs a manager to its end.
    pub async fn manager_ends(&self) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.arg("20").arg(programs::chandler()).args(self.arguments());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub fn manager(&self) -> Child {
        let program = PathBuf::from(programs::chandler());
        let spec = Spec {
            name: "manager".to_owned(),
            program,
            args: self.arguments(),
            env: Vec::new(),
            home: self.dir.clone(),
        };
        Child::spawn(&spec).unwrap()
    }

    fn arguments(&self) -> Vec<String> {
        let tool = programs::package_tool();
        let text = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        let arguments =
            ["manager", "--kubeconfig", &text("kubeconfig"), "--store", &text("store"), "--tool", tool];
        arguments
            .map(str::to_owned)
            .into_iter()
            .chain(["--allow-source-address", "127.0.0.1", "--lease-seconds", "60"].map(str::to_owned))
            .chain(["--metrics-address", "127.0.0.1:0", "--log-format", "json"].map(str::to_owned))
            .collect()
    }
}

fn cluster_definition() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": {"kind": "Cluster", "plural": "clusters"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
