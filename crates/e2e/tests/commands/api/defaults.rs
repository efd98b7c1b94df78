//! What the API server fills in, and what it leaves as it was written.

use chandler_api::addons::{HelmChartProxySpec, HelmOptions};
use serde_json::{Value, json};

use super::{
    objects::{CHART, RELEASE, object},
    server::Server,
};

#[tokio::test]
async fn unset_fields_get_their_defaults_and_set_ones_stay() {
    let server = Server::shared().await;
    let defaults = json!({
        "enableClientCache": false, "timeout": "10m",
        "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10},
    });
    let with = |changes: Value| {
        let mut options = defaults.clone();
        options.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
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
            let made = server.try_create(&object(kind, &changes)).await.unwrap();
            assert_eq!(made["spec"]["options"], expected, "{kind} {changes}");
        }
    }
}

#[tokio::test]
async fn releases_go_to_the_default_namespace_and_nothing_else_is_filled_in() {
    let server = Server::shared().await;
    for kind in [CHART, RELEASE] {
        let written = object(kind, &json!({}));
        let mut made = server.try_create(&written).await.unwrap();
        let spec = made["spec"].as_object_mut().unwrap();
        assert_eq!(spec.remove("namespace"), Some(json!("default")));
        spec.remove("options").unwrap();
        assert_eq!(made["spec"], written["spec"]);
        assert_eq!(made.get("status"), None);

        let elsewhere = server.try_create(&object(kind, &json!({"namespace": "apps"}))).await.unwrap();
        assert_eq!(elsewhere["spec"]["namespace"], "apps");
    }
}

/// Otherwise the controller would find its own objects changed, and write them again for ever.
#[tokio::test]
async fn the_types_read_an_unset_field_as_the_server_fills_it_in() {
    let server = Server::shared().await;
    let written = object(CHART, &json!({}));
    let made = server.try_create(&written).await.unwrap();
    let [unset, filled]: [HelmChartProxySpec; 2] =
        [&written, &made].map(|object| serde_json::from_value(object["spec"].clone()).unwrap());
    assert_eq!(unset, filled);
    assert_eq!(filled.options, HelmOptions::default());
}
