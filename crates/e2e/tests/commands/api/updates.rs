//! Updates of existing objects.

use chandler_api::{FIELD_MANAGER, crds};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    logins,
    objects::{CHART, RELEASE, object},
    server::{Server, object_or_message},
};

const STRATEGY: Option<&str> = Some("spec.reconcileStrategy: Invalid value: \"object\": is immutable");
const NAMESPACE: Option<&str> = Some("spec.namespace: Invalid value: \"object\": is immutable");
const RELEASE_NAME: Option<&str> = Some("spec.releaseName: Invalid value: \"object\": is immutable");

#[tokio::test]
async fn immutable_fields_cannot_be_changed() {
    let server = Server::shared().await;
    let once = || json!({"reconcileStrategy": "InstallOnce"});
    let named = || json!({"releaseName": "hello"});
    let elsewhere = || json!({"repoURL": "https://elsewhere.example"});
    let rows = [
        (CHART, json!({}), json!({"reconcileStrategy": ""}), None),
        (CHART, json!({"reconcileStrategy": ""}), json!({"reconcileStrategy": null}), None),
        (CHART, json!({}), json!({"reconcileStrategy": "Continuous"}), STRATEGY),
        (CHART, once(), json!({"reconcileStrategy": "Continuous"}), STRATEGY),
        (CHART, once(), json!({"reconcileStrategy": null}), STRATEGY),
        (CHART, json!({}), json!({"chartName": "other", "namespace": "apps", "releaseName": "other"}), None),
        (CHART, json!({}), elsewhere(), None),
        (
            CHART,
            json!({}),
            json!({"repoURL": "http://elsewhere.example"}),
            Some("spec.repoURL: Invalid value"),
        ),
        (CHART, named(), json!({"releaseName": null, "clusterSelector": {"matchLabels": {"a": "b"}}}), None),
        (RELEASE, json!({}), json!({"reconcileStrategy": "InstallOnce"}), STRATEGY),
        (RELEASE, once(), json!({"reconcileStrategy": ""}), STRATEGY),
        (
            RELEASE,
            json!({}),
            json!({"chartName": "other"}),
            Some("spec.chartName: Invalid value: \"string\": is immutable"),
        ),
        (RELEASE, json!({}), elsewhere(), Some("spec.repoURL: Invalid value: \"string\": is immutable")),
        (RELEASE, json!({}), json!({"namespace": "apps"}), NAMESPACE),
        (RELEASE, json!({"namespace": "apps"}), json!({"namespace": null}), NAMESPACE),
        (RELEASE, json!({"namespace": ""}), json!({"namespace": "default"}), None),
        (RELEASE, json!({"namespace": "default"}), json!({"namespace": null}), None),
        (RELEASE, json!({}), named(), None),
        (RELEASE, named(), json!({"releaseName": "other"}), RELEASE_NAME),
        (RELEASE, named(), json!({"releaseName": null}), RELEASE_NAME),
        (RELEASE, json!({}), json!({"clusterRef": {"name": "green"}}), Some("the name is immutable")),
        (RELEASE, json!({}), json!({"clusterRef": {"name": null}}), Some("the name is immutable")),
        (RELEASE, json!({"clusterRef": {}}), json!({"clusterRef": {"name": "green"}}), None),
        (RELEASE, json!({}), json!({"clusterRef": {"apiVersion": "cluster.x-k8s.io/v1beta2"}}), None),
        (RELEASE, json!({}), json!({"version": "2.0.0", "values": "a: b", "options": {"wait": true}}), None),
    ];
    for (kind, before, change, error) in rows {
        let created = server.create(&object(kind, &before)).await.unwrap();
        let result = server.patch(&created, json!({"spec": change})).await;
        match (result, error) {
            (Ok(_), None) => {}
            (Err(message), Some(expected)) => {
                assert!(message.contains(expected), "{kind} {change}\n{message}");
            }
            (result, _) => panic!("{kind} {before} {change}\n{result:?}\nexpected: {error:?}"),
        }
    }
}

#[tokio::test]
async fn objects_that_violate_a_newer_rule_can_be_updated_and_deleted() {
    let server = Server::dedicated().await;
    server.install(&crds().into_iter().map(without_rules).collect::<Vec<_>>()).await;
    let old = json!({"repoURL": "http://charts.example", "options": {"timeout": "soon"}});
    let mut objects = Vec::new();
    for kind in [CHART, RELEASE] {
        let mut object = object(kind, &old);
        object["metadata"]["finalizers"] = json!(["addons.example/keep"]);
        objects.push(server.create(&object).await.unwrap());
    }
    let with_logins = logins::create_old(&server).await;
    server.install(&crds()).await;
    logins::assert_kept(&server, &with_logins).await;
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        server
            .wait_rejected(&super::objects::object(kind, &json!({"repoURL": "http://charts.example"})))
            .await;
        server.patch(object, json!({"spec": {"version": "2.0.0", "options": {"wait": true}}})).await.unwrap();
        server.patch(object, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
        assert_controller_writes_are_accepted(&server, object).await;
        for (change, expected) in [
            (json!({"repoURL": "http://elsewhere.example"}), "spec.repoURL"),
            (json!({"options": {"timeout": "later"}}), "spec.options.timeout"),
        ] {
            let message = server.patch(object, json!({"spec": change})).await.unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        server.patch(object, json!({"spec": {"options": {"timeout": "5m"}}})).await.unwrap();
        assert_deletable(&server, object).await;
    }
    assert_eq!(objects.len(), 2);
}

/// Writes the object in the ways of a controller: by replace, by server-side apply, and to its status.
async fn assert_controller_writes_are_accepted(server: &Server, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = server.api(object["kind"].as_str().unwrap());
    let current = api.get(name).await.unwrap();
    object_or_message(api.replace(name, &PostParams::default(), &current).await).unwrap();
    let apply = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": name, "annotations": {"applied": "yes"}},
        "spec": current.data["spec"],
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    object_or_message(api.patch(name, &parameters, &Patch::Apply(&apply)).await).unwrap();
    let status = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
    object_or_message(api.patch_status(name, &PatchParams::default(), &status).await).unwrap();
}

async fn assert_deletable(server: &Server, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = server.api(object["kind"].as_str().unwrap());
    api.delete(name, &DeleteParams::default()).await.unwrap();
    assert!(api.get(name).await.unwrap().metadata.deletion_timestamp.is_some());
    server.patch(object, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(api.get_opt(name).await.unwrap(), None);
}

fn without_rules(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("x-kubernetes-validations");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(crd).unwrap();
    strip(&mut value);
    serde_json::from_value(value).unwrap()
}
