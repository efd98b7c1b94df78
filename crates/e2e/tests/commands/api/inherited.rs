//! Objects and definitions as the Cluster API add-on provider for Helm leaves them.

use std::process::Command;

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_core::{
    identity::ClusterKey,
    placement::{PlacementKind as _, release_object},
};
use chandler_e2e::programs;
use chandler_sandbox::{assets::Binary, testing};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::server::{Server, answer};

const CHART: &str = include_str!("fixtures/helm-chart-proxy.yaml");
const RELEASE: &str = include_str!("fixtures/helm-release-proxy.yaml");

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn the_types_lose_nothing() {
    let (chart, release): (Value, Value) = (read(CHART), read(RELEASE));
    assert_eq!(through::<HelmChartProxy>(&chart), chart);
    assert_eq!(through::<HelmReleaseProxy>(&release), release);
}

#[tokio::test]
async fn the_server_takes_them_unchanged() {
    let server = Server::shared().await;
    for object in [CHART, RELEASE].map(read::<Value>) {
        let mut new = object.clone();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion").unwrap();
        let made = server.create(&new).await.unwrap();
        let api = server.api(object["kind"].as_str().unwrap());
        let name = made["metadata"]["name"].as_str().unwrap();
        let status = Patch::Merge(json!({"status": object["status"]}));
        let stored = answer(api.patch_status(name, &PatchParams::default(), &status).await).unwrap();
        for part in ["spec", "status"] {
            assert_eq!(stored[part], object[part]);
        }
        for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
            assert_eq!(stored["metadata"][part], object["metadata"][part]);
        }
        let dry = PostParams { dry_run: true, field_manager: None };
        let again = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(answer(api.replace(name, &dry, &again).await).unwrap(), stored);
    }
}

#[test]
fn there_is_nothing_to_write_to_a_release_object() {
    let (chart, release): (HelmChartProxy, HelmReleaseProxy) = (read(CHART), read(RELEASE));
    let cluster = ClusterKey::new("default", "blue");
    let wanted = release_object(&chart, &cluster, "cluster: blue\n".to_owned(), Some(&release));
    assert_eq!(wanted.spec, release.spec);
    assert!(HelmChartProxy::same_request(&release, &wanted));

    let mut unnamed = release.clone();
    unnamed.spec.release_name.clear();
    unnamed.spec.release_namespace.clear();
    assert!(HelmChartProxy::same_identity(&unnamed, &wanted), "not yet installed, so not reinstalled");
}

/// Its definitions ask a webhook for conversion, which goes away with it.
#[tokio::test]
async fn definitions_with_a_conversion_webhook_are_taken_over() {
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "caaph-system", "name": "caaph-webhook-service"}},
        "conversionReviewVersions": ["v1"],
    }});
    let server = Server::own().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    for ours in chandler_api::crds() {
        let mut theirs = ours.clone();
        theirs.spec.conversion = Some(serde_json::from_value(conversion.clone()).unwrap());
        definitions.create(&PostParams::default(), &theirs).await.unwrap();
    }
    let kubectl = testing::assets().await.unwrap().path(Binary::Kubectl);
    let apply = format!(
        "{} crds | {} --kubeconfig {} apply -f -",
        programs::chandler(),
        kubectl.display(),
        server.kubeconfig().display()
    );
    let output = Command::new("sh").args(["-c", &apply]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for definition in definitions.list(&ListParams::default()).await.unwrap() {
        let conversion = definition.spec.conversion.unwrap();
        assert_eq!((conversion.strategy.as_str(), conversion.webhook), ("None", None));
    }
}
