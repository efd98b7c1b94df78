//! A local provider repository for clusterctl, with the components of real providers, and its config.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use chandler_e2e::{go_module, packaging};
use chandler_sandbox::{assets::Binary, provider, testing};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

/// The Go modules of the Cluster API Add-on Provider for Helm (CAAPH) and of cert-manager.
const CAAPH: &str = "sigs.k8s.io/cluster-api-addon-provider-helm@v0.5.3";
const CERT_MANAGER: &str = "github.com/cert-manager/cert-manager@v1.19.3";
/// Two versions of Chandler for upgrades.
pub const OLDER: &str = "v0.1.0";
pub const NEWER: &str = "v0.1.1";

/// Installs the core and the infrastructure provider on a management cluster.
pub const INIT_CORE: &str = "clusterctl init --core cluster-api:v1.12.3 --infrastructure sandbox:v1.0.0 --bootstrap - --control-plane -";

/// A folder with a subfolder for each version of each provider.
pub struct Providers {
    folder: PathBuf,
}

impl Providers {
    /// Creates providers for a management cluster on which the Cluster API core runs as a process.
    pub async fn new(folder: &Path, client: &Client) -> Self {
        Self::with_core(folder, Some(client)).await
    }

    /// Creates providers for a management cluster on which the Cluster API does not run.
    pub async fn without_core_process(folder: &Path) -> Self {
        Self::with_core(folder, None).await
    }

    async fn with_core(folder: &Path, process: Option<&Client>) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let providers = Self { folder: folder.to_owned() };
        providers.core(process).await;
        providers.sandbox();
        providers.cert_manager().await;
        providers
    }

    /// Returns the path of a file of a provider.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the content of `~/.config/cluster-api/clusterctl.yaml`.
    pub fn config(&self) -> String {
        let known = [
            ("cluster-api", "CoreProvider", "cluster-api/v1.12.3/core-components.yaml"),
            (
                "sandbox",
                "InfrastructureProvider",
                "infrastructure-sandbox/v1.0.0/infrastructure-components.yaml",
            ),
            ("helm", "AddonProvider", "addon-helm/v0.5.3/addon-components.yaml"),
            ("chandler", "AddonProvider", "addon-chandler/v0.1.0/addon-components.yaml"),
        ];
        let folder = self.folder.display();
        let mut config = format!(
            "cert-manager: {{url: 'file://{folder}/cert-manager/v1.19.3/cert-manager.yaml', version: v1.19.3}}\nproviders:\n"
        );
        for (name, kind, path) in known {
            writeln!(config, "- {{name: {name}, type: {kind}, url: 'file://{folder}/{path}'}}").unwrap();
        }
        config
    }

    /// Creates the folder of a version of a provider.
    fn create_version(&self, provider: &str, version: &str) -> PathBuf {
        let folder = self.folder.join(provider).join(version);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Writes the components of the Cluster API core. If it runs as a process, the webhooks point to that process.
    async fn core(&self, process: Option<&Client>) {
        let module = go_module::of_sandbox("sigs.k8s.io/cluster-api").await;
        let target = self.create_version("cluster-api", "v1.12.3");
        let mut objects = kustomize(&module.join("config/default")).await;
        if let Some(client) = process {
            for object in &mut objects {
                point_at_process(client, object).await;
            }
        }
        write_all(&target.join("core-components.yaml"), &objects);
        copy(&module.join("metadata.yaml"), &target);
    }

    fn sandbox(&self) {
        let target = self.create_version("infrastructure-sandbox", "v1.0.0");
        let mut objects = vec![namespace("sandbox-system")];
        objects.extend(provider::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()));
        write_all(&target.join("infrastructure-components.yaml"), &objects);
        let metadata = json!({
            "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata",
            "releaseSeries": [{"major": 1, "minor": 0, "contract": "v1beta2"}],
        });
        std::fs::write(target.join("metadata.yaml"), metadata.to_string()).unwrap();
    }

    /// Writes only the CRDs of cert-manager: clusterctl only checks that they are served.
    async fn cert_manager(&self) {
        let crds = go_module::folder(&self.folder, CERT_MANAGER).await.join("deploy/crds");
        let target = self.create_version("cert-manager", "v1.19.3");
        let files = std::fs::read_dir(crds).unwrap().map(|file| file.unwrap().path());
        let crds = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        let text: Vec<_> = crds.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        std::fs::write(target.join("cert-manager.yaml"), text.join("\n---\n")).unwrap();
    }

    /// Writes the components of CAAPH. Returns its CRDs.
    pub async fn caaph(&self) -> Vec<Value> {
        let module = go_module::folder(&self.folder, CAAPH).await;
        let target = self.create_version("addon-helm", "v0.5.3");
        let objects = kustomize(&module.join("config/default")).await;
        write_all(&target.join("addon-components.yaml"), &objects);
        copy(&module.join("metadata.yaml"), &target);
        objects.into_iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect()
    }

    /// Writes the current components of Chandler as two versions.
    pub async fn chandler(&self) {
        let dist = packaging::dist().await;
        let components = std::fs::read_to_string(dist.join("addon-components.yaml")).unwrap();
        let unreleased = concat!(":v", env!("CARGO_PKG_VERSION"));
        assert!(components.contains(unreleased), "the image has the version as its tag");
        for version in [OLDER, NEWER] {
            let target = self.create_version("addon-chandler", version);
            let released = components.replace(unreleased, &format!(":{version}"));
            std::fs::write(target.join("addon-components.yaml"), released).unwrap();
            copy(&dist.join("metadata.yaml"), &target);
        }
    }
}

/// Waits until the namespace is deleted that `clusterctl init` creates to test cert-manager. The next `clusterctl init`
/// would fail to create it.
pub async fn wait_cert_manager_test_deleted(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    while namespaces.get_opt("cert-manager-test").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the objects that `kubectl kustomize` prints for a folder.
async fn kustomize(folder: &Path) -> Vec<Value> {
    let kubectl = testing::assets().await.unwrap().path(Binary::Kubectl);
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Replaces the webhooks of an object by those of the existing object: their Services do not exist here.
async fn point_at_process(client: &Client, object: &mut Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    match object["kind"].as_str().unwrap() {
        "CustomResourceDefinition" => {
            let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
            let existing = crds.get_opt(&name).await.unwrap();
            object["spec"]["conversion"] =
                serde_json::to_value(existing.and_then(|existing| existing.spec.conversion)).unwrap();
        }
        kind @ ("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let all = all.list(&ListParams::default()).await.unwrap();
            let existing = all.into_iter().find(|existing| existing.name_any() == name).unwrap();
            object["webhooks"] = existing.data["webhooks"].clone();
        }
        _ => {}
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Writes objects as JSON documents, which are valid YAML.
fn write_all(path: &Path, objects: &[Value]) {
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    std::fs::write(path, documents.join("\n---\n")).unwrap();
}

fn copy(file: &Path, folder: &Path) {
    // `fs::copy` would copy the permissions, and Go's module cache is read-only.
    std::fs::write(folder.join(file.file_name().unwrap()), std::fs::read(file).unwrap()).unwrap();
}
