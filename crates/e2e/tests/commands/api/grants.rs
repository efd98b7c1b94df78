//! Validation of ReferenceGrant.

use serde_json::json;

use super::{
    objects::{GRANT, object, without},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn reference_grants_are_validated() {
    let server = Server::shared().await;
    let rows = [
        (object(GRANT, &json!({})), None),
        (object(GRANT, &json!({"to": [{"kind": "Secret", "name": "login"}]})), None),
        (without(GRANT, "from"), Some("spec.from: Required value")),
        (without(GRANT, "to"), Some("spec.to: Required value")),
        (object(GRANT, &json!({"from": []})), Some("spec.from in body should have at least 1 items")),
        (object(GRANT, &json!({"to": [{"kind": "ConfigMap"}]})), Some("Unsupported value: \"ConfigMap\"")),
        (
            object(GRANT, &json!({"from": [{"group": "", "kind": "", "namespace": "fleet"}]})),
            Some("spec.from[0].kind"),
        ),
    ];
    for (object, error) in rows {
        check(&server, &object, error).await;
    }
}
