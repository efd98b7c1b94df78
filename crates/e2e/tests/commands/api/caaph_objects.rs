//! Objects and CRDs of the Cluster API Add-on Provider for Helm (CAAPH).

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

use super::server::{Server, object_or_message};

const CHART: &str = include_str!("fixtures/helm-chart-proxy.yaml");
const RELEASE: &str = include_str!("fixtures/helm-release-proxy.yaml");

fn parse<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn caaph_objects_round_trip_through_the_rust_types() {
    let (chart, release): (Value, Value) = (parse(CHART), parse(RELEASE));
    assert_eq!(round_trip::<HelmChartProxy>(&chart), chart);
    assert_eq!(round_trip::<HelmReleaseProxy>(&release), release);
}

#[tokio::test]
async fn the_api_server_stores_caaph_objects_unchanged() {
    let server = Server::shared().await;
    for object in [CHART, RELEASE].map(parse::<Value>) {
        let mut new = object.clone();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion").unwrap();
        let created = server.create(&new).await.unwrap();
        let api = server.api(object["kind"].as_str().unwrap());
        let name = created["metadata"]["name"].as_str().unwrap();
        let status = Patch::Merge(json!({"status": object["status"]}));
        let stored =
            object_or_message(api.patch_status(name, &PatchParams::default(), &status).await).unwrap();
        for part in ["spec", "status"] {
            assert_eq!(stored[part], object[part]);
        }
        for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
            assert_eq!(stored["metadata"][part], object["metadata"][part]);
        }
        let dry_run = PostParams { dry_run: true, field_manager: None };
        let again = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(object_or_message(api.replace(name, &dry_run, &again).await).unwrap(), stored);
    }
}

#[test]
fn a_release_object_of_caaph_needs_no_update() {
    let (chart, release): (HelmChartProxy, HelmReleaseProxy) = (parse(CHART), parse(RELEASE));
    let cluster = ClusterKey::new("default", "blue");
    let desired = release_object(&chart, &cluster, "cluster: blue\n".to_owned(), Some(&release));
    assert_eq!(desired.spec, release.spec);
    assert!(HelmChartProxy::same_request(&release, &desired));

    let mut unnamed = release.clone();
    unnamed.spec.release_name.clear();
    unnamed.spec.release_namespace.clear();
    assert!(
        HelmChartProxy::same_identity(&unnamed, &desired),
        "a release that is not installed yet is not reinstalled"
    );
}

/// The conversion webhook of the CRDs is removed together with CAAPH.
#[tokio::test]
async fn crds_with_a_conversion_webhook_can_be_replaced() {
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "caaph-system", "name": "caaph-webhook-service"}},
        "conversionReviewVersions": ["v1"],
    }});
    let server = Server::dedicated().await;
    let crds: Api<CustomResourceDefinition> = Api::all(server.client());
    for mut crd in chandler_api::crds() {
        crd.spec.conversion = Some(serde_json::from_value(conversion.clone()).unwrap());
        crds.create(&PostParams::default(), &crd).await.unwrap();
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
    for crd in crds.list(&ListParams::default()).await.unwrap() {
        let conversion = crd.spec.conversion.unwrap();
        assert_eq!((conversion.strategy.as_str(), conversion.webhook), ("None", None));
    }
}
