//! A git repository whose folders are packages, and the instances that install them.

use chandler_api::extensions::{AddonRelease, Source};
use chandler_sandbox::git_server::{GitServer, WorkTree};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::{
    extension_world::{ExtensionWorld, is_ready},
    wait::eventually,
};

pub const CHART: &str = "apiVersion: v2\nname: greeter\nversion: 0.1.0\nkubeVersion: '>=1.30.0-0'\n";
pub const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n\
                        data:\n  greeting: {{ .Values.greeting | quote }}\n";

/// A repository that a Source named `apps` fetches every second.
pub struct Repository {
    _server: GitServer,
    pub tree: WorkTree,
}

impl Repository {
    pub async fn new(test: &ExtensionWorld) -> Self {
        let world = &test.world;
        let server = GitServer::start(world.sandbox.authority(), &world.dir.join("served")).await.unwrap();
        let tree = server.create("apps").await.unwrap();
        world
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": "apps", "namespace": world.namespace},
                "spec": {
                    "git": {"url": server.url("apps")}, "interval": "1s",
                    "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                },
            }))
            .await;
        Self { _server: server, tree }
    }

    pub async fn push(&self, files: &[(&str, &str)]) -> String {
        self.tree.commit("change", files).await.unwrap()
    }
}

pub fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}

/// Applies an instance for all clusters whose package is in a folder of the Source; `fields` adds fields to its spec.
pub async fn apply_folder(test: &ExtensionWorld, name: &str, path: &str, fields: Value) {
    let mut spec = json!({
        "source": {"sourceRef": {"name": "apps"}, "path": path}, "release": {"namespace": "default"},
        "clusters": {"selector": {"matchLabels": {"fleet": "test"}}},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": name, "namespace": test.world.namespace}, "spec": spec,
        }))
        .await;
}

/// Waits until the release of an instance on a cluster is ready with a package of this revision.
pub async fn wait_pinned(
    test: &ExtensionWorld,
    instance: &str,
    cluster: &str,
    revision: &str,
) -> AddonRelease {
    eventually(&format!("{instance} on {cluster} is ready at {revision}"), || async {
        let all = test.releases().list(&ListParams::default()).await.unwrap();
        let release = all.items.into_iter().find(|release| {
            release.spec.cluster == cluster && release.spec.release.name == instance && is_ready(release)
        })?;
        (release.spec.pinned.as_ref()?.revision == revision).then_some(release)
    })
    .await
}

/// Waits until the Source has fetched a revision.
pub async fn wait_revision(test: &ExtensionWorld, revision: &str) {
    let sources: Api<Source> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    eventually(&format!("the Source is at {revision}"), || async {
        (sources.get("apps").await.unwrap().status?.revision.as_deref() == Some(revision)).then_some(())
    })
    .await;
}
