//! Consent to references from other namespaces: which grants can be given.

use serde_json::json;

use super::{
    objects::{GRANT, object, without},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn a_grant_names_who_and_what() {
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
    for (object, refusal) in rows {
        check(&server, &object, refusal).await;
    }
}
