//! Defaults of HelmChartProxy and HelmReleaseProxy.

use chandler_api::addons::{HelmChartProxySpec, HelmOptions};
use serde_json::{Value, json};

use super::{
    objects::{CHART, RELEASE, object},
    server::Server,
};

#[tokio::test]
async fn defaults_are_set_only_for_unset_fields() {
    let server = Server::shared().await;
    let defaults = json!({
        "enableClientCache": false, "timeout": "10m",
        "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10},
    });
    let with = |fields: Value| {
        let mut options = defaults.clone();
        options.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        options
    };
    let rows = [
        (json!({}), defaults.clone()),
        (json!({"options": null}), defaults.clone()),
        (
            json!({"options": {"timeout": null, "install": null, "upgrade": {}, "uninstall": null}}),
            defaults.clone(),
        ),
        (json!({"options": {"atomic": true}}), with(json!({"atomic": true}))),
        (
            json!({"options": {"timeout": "10m0s", "wait": false}}),
            with(json!({"timeout": "10m0s", "wait": false})),
        ),
        (
            json!({"options": {"install": {"createNamespace": false}, "upgrade": {"maxHistory": 0}}}),
            with(json!({"install": {"createNamespace": false}, "upgrade": {"maxHistory": 0}})),
        ),
    ];
    for (changes, expected) in rows {
        for kind in [CHART, RELEASE] {
            let created = server.dry_run_create(&object(kind, &changes)).await.unwrap();
            assert_eq!(created["spec"]["options"], expected, "{kind} {changes}");
        }
    }
}

#[tokio::test]
async fn only_the_options_and_the_release_namespace_have_defaults() {
    let server = Server::shared().await;
    for kind in [CHART, RELEASE] {
        let written = object(kind, &json!({}));
        let mut created = server.dry_run_create(&written).await.unwrap();
        let spec = created["spec"].as_object_mut().unwrap();
        assert_eq!(spec.remove("namespace"), Some(json!("default")));
        spec.remove("options").unwrap();
        assert_eq!(created["spec"], written["spec"]);
        assert_eq!(created.get("status"), None);

        let explicit = server.dry_run_create(&object(kind, &json!({"namespace": "apps"}))).await.unwrap();
        assert_eq!(explicit["spec"]["namespace"], "apps");
    }
}

/// Otherwise the controller would see a difference in its own objects and write them again and again.
#[tokio::test]
async fn the_rust_types_and_the_api_server_use_the_same_defaults() {
    let server = Server::shared().await;
    let written = object(CHART, &json!({}));
    let created = server.dry_run_create(&written).await.unwrap();
    let [unset, filled]: [HelmChartProxySpec; 2] =
        [&written, &created].map(|object| serde_json::from_value(object["spec"].clone()).unwrap());
    assert_eq!(unset, filled);
    assert_eq!(filled.options, HelmOptions::default());
}
