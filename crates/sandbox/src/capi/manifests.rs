//! Reads the manifests of Cluster API's core provider and points their webhooks at the local manager.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Error;

/// The address of the manager's webhooks.
#[derive(Debug, Clone)]
pub(super) struct WebhookServer {
    pub(super) port: u16,
    /// The certificate of the webhooks' authority, in PEM.
    pub(super) authority: String,
}

impl WebhookServer {
    fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://127.0.0.1:{}{path}", self.port),
            "caBundle": STANDARD.encode(&self.authority),
        })
    }
}

/// Returns the CRDs of the core provider, with the manager as their conversion webhook.
pub(super) fn crds(config: &Path, server: &WebhookServer) -> Result<Vec<Value>, Error> {
    let folder = config.join("crd/bases");
    let mut crds = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(Error::manifest(&folder))? {
        let path = entry.map_err(Error::manifest(&folder))?.path();
        for mut crd in documents(&path)? {
            crd["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1", "v1beta1"],
                    "clientConfig": server.client_config("/convert"),
                },
            });
            crds.push(crd);
        }
    }
    Ok(crds)
}

/// Returns the webhook configurations of the core provider.
pub(super) fn webhooks(config: &Path, server: &WebhookServer) -> Result<Vec<Value>, Error> {
    let mut documents = documents(&config.join("webhook/manifests.yaml"))?;
    for document in &mut documents {
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        document["metadata"]["name"] = json!(format!("capi-{name}"));
        for webhook in document["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            webhook["clientConfig"] = server.client_config(path);
        }
    }
    Ok(documents)
}

fn documents(path: &Path) -> Result<Vec<Value>, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::manifest(path))?;
    serde_saphyr::from_multiple(&text)
        .map_err(|source| Error::ParseManifest { path: path.to_owned(), source: Box::new(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_point_at_the_local_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhook");
        std::fs::create_dir_all(&path).unwrap();
        let manifest = "---\nkind: A\nmetadata: {name: x}\nwebhooks:\n- clientConfig: {service: {path: /validate}}\n---\nkind: B\nmetadata: {name: y}\n";
        std::fs::write(path.join("manifests.yaml"), manifest).unwrap();
        let server = WebhookServer { port: 9443, authority: "pem".to_owned() };
        let documents = webhooks(folder.path(), &server).unwrap();
        assert_eq!(documents.len(), 2);
        let expected = json!({"url": "https://127.0.0.1:9443/validate", "caBundle": "cGVt"});
        assert_eq!(documents[0]["webhooks"][0]["clientConfig"], expected);
        assert_eq!(documents[0]["metadata"]["name"], "capi-x");
    }
}
