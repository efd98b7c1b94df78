//! What clusterctl installs providers from: folders with the components of real ones, and a config that names them.

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

/// The version of the other provider, and of what it needs.
const OTHER_PROVIDER: &str = "sigs.k8s.io/cluster-api-addon-provider-helm@v0.5.3";
const CERT_MANAGER: &str = "github.com/cert-manager/cert-manager@v1.19.3";
/// Versions of Chandler.
pub const OLDER: &str = "v0.1.0";
pub const NEWER: &str = "v0.1.1";

/// Brings a management cluster to where users have theirs before they think of add-ons.
pub const INIT_CORE: &str = "clusterctl init --core cluster-api:v1.12.3 --infrastructure sandbox:v1.0.0 --bootstrap - --control-plane -";

/// Folders of providers, each with its versions.
pub struct Providers {
    folder: PathBuf,
}

impl Providers {
    /// `client` is of a management plane on which the Cluster API core runs as a process.
    pub async fn new(folder: &Path, client: &Client) -> Self {
        Self::with_core(folder, Some(client)).await
    }

    /// For a management plane on which nothing of the Cluster API runs.
    pub async fn plain(folder: &Path) -> Self {
        Self::with_core(folder, None).await
    }

    async fn with_core(folder: &Path, process: Option<&Client>) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let providers = Self { folder: folder.to_owned() };
        providers.core(process).await;
        providers.sandbox();
        providers.cert_manager();
        providers
    }

    /// A file of a provider.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What a person would have in `~/.config/cluster-api/clusterctl.yaml`.
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

    /// A version of a provider.
    fn version(&self, provider: &str, version: &str) -> PathBuf {
        let folder = self.folder.join(provider).join(version);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The real one, its webhooks being those of the process, if one runs.
    async fn core(&self, process: Option<&Client>) {
        let module = go_module::of_sandbox("sigs.k8s.io/cluster-api");
        let target = self.version("cluster-api", "v1.12.3");
        let mut objects = kustomized(&module.join("config/default")).await;
        if let Some(client) = process {
            for object in &mut objects {
                point_at_process(client, object).await;
            }
        }
        write_all(&target.join("core-components.yaml"), &objects);
        copy(&module.join("metadata.yaml"), &target);
    }

    fn sandbox(&self) {
        let target = self.version("infrastructure-sandbox", "v1.0.0");
        let mut objects = vec![namespace("sandbox-system")];
        objects.extend(provider::crds().iter().map(|kind| serde_json::to_value(kind).unwrap()));
        write_all(&target.join("infrastructure-components.yaml"), &objects);
        let metadata = json!({
            "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata",
            "releaseSeries": [{"major": 1, "minor": 0, "contract": "v1beta2"}],
        });
        std::fs::write(target.join("metadata.yaml"), metadata.to_string()).unwrap();
    }

    /// Its kinds alone: all that clusterctl looks at is that they are served.
    fn cert_manager(&self) {
        let kinds = go_module::folder(&self.folder, CERT_MANAGER).join("deploy/crds");
        let target = self.version("cert-manager", "v1.19.3");
        let files = std::fs::read_dir(kinds).unwrap().map(|file| file.unwrap().path());
        let kinds = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        let text: Vec<_> = kinds.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        std::fs::write(target.join("cert-manager.yaml"), text.join("\n---\n")).unwrap();
    }

    /// The Cluster API add-on provider for Helm; returns its kinds.
    pub async fn other(&self) -> Vec<Value> {
        let module = go_module::folder(&self.folder, OTHER_PROVIDER);
        let target = self.version("addon-helm", "v0.5.3");
        let objects = kustomized(&module.join("config/default")).await;
        write_all(&target.join("addon-components.yaml"), &objects);
        copy(&module.join("metadata.yaml"), &target);
        objects.into_iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect()
    }

    /// Chandler as it would be released now, and again.
    pub async fn chandler(&self) {
        let made = packaging::dist().await;
        let components = std::fs::read_to_string(made.join("addon-components.yaml")).unwrap();
        let unreleased = concat!(":v", env!("CARGO_PKG_VERSION"));
        assert!(components.contains(unreleased), "the image has the version as its tag");
        for version in [OLDER, NEWER] {
            let target = self.version("addon-chandler", version);
            let released = components.replace(unreleased, &format!(":{version}"));
            std::fs::write(target.join("addon-components.yaml"), released).unwrap();
            copy(&made.join("metadata.yaml"), &target);
        }
    }
}

/// To see whether cert-manager answers, `clusterctl init` makes a namespace and has it deleted. The next one has to wait
/// until that is gone: it would try in vain to make the same again.
pub async fn settled(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    while namespaces.get_opt("cert-manager-test").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What `kubectl kustomize` makes of a folder.
async fn kustomized(folder: &Path) -> Vec<Value> {
    let kubectl = testing::assets().await.unwrap().path(Binary::Kubectl);
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// There is no Service of that name here: the API server is to ask where it asks already.
async fn point_at_process(client: &Client, object: &mut Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    match object["kind"].as_str().unwrap() {
        "CustomResourceDefinition" => {
            let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
            let there = definitions.get_opt(&name).await.unwrap();
            object["spec"]["conversion"] =
                serde_json::to_value(there.and_then(|there| there.spec.conversion)).unwrap();
        }
        kind @ ("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let all = all.list(&ListParams::default()).await.unwrap();
            let there = all.into_iter().find(|there| there.name_any() == name).unwrap();
            object["webhooks"] = there.data["webhooks"].clone();
        }
        _ => {}
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// JSON is YAML.
fn write_all(path: &Path, objects: &[Value]) {
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    std::fs::write(path, documents.join("\n---\n")).unwrap();
}

fn copy(file: &Path, folder: &Path) {
    // Go's cache is read-only; a copy through bytes is not.
    std::fs::write(folder.join(file.file_name().unwrap()), std::fs::read(file).unwrap()).unwrap();
}
