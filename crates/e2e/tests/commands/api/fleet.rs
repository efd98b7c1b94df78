//! Validation of FleetAddonConfig.

use serde_json::json;

use super::{
    objects::{FLEET, object},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn there_is_one_fleet_addon_config() {
    let server = Server::shared().await;
    let mut other = object(FLEET, &json!({}));
    check(&server, &other, None).await;
    other["metadata"]["name"] = json!("another");
    check(&server, &other, Some("the only object of this kind has the name fleet-addon-config")).await;
}

#[tokio::test]
async fn sections_are_validated_as_by_the_add_on_provider_for_fleet() {
    let server = Server::shared().await;
    let selectors = json!({"selector": {}, "namespaceSelector": {}});
    let gates = json!({"experimentalOciStorage": true, "experimentalHelmOps": false});
    let rows = [
        (json!({"cluster": selectors, "clusterClass": {}}), None),
        (json!({"cluster": {"selector": {}}}), Some("spec.cluster.namespaceSelector: Required value")),
        (json!({"install": {"followLatest": true}}), None),
        (json!({"install": {"version": "0.12.0"}}), None),
        (json!({"install": {}}), Some("exactly one of followLatest, version must be set")),
        (
            json!({"install": {"followLatest": true, "version": "0.12.0"}}),
            Some("exactly one of followLatest, version must be set"),
        ),
        (json!({"config": {"server": {"inferLocal": true}, "featureGates": gates}}), None),
        (json!({"config": {"server": {"custom": {"apiServerUrl": "https://a"}}}}), None),
        (json!({"config": {"server": {}}}), Some("exactly one of inferLocal, custom must be set")),
        (
            json!({"config": {"featureGates": {"experimentalHelmOps": true}}}),
            Some("spec.config.featureGates.experimentalOciStorage: Required value"),
        ),
    ];
    for (spec, error) in rows {
        check(&server, &object(FLEET, &spec), error).await;
    }
}
