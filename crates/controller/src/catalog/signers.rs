//! The signers that a catalog or a Source requires, from a Secret and a ConfigMap in its namespace.

use std::sync::Arc;

use chandler_api::extensions::{ExtensionCatalogSpec, SignerIdentity, Verification};
use chandler_core::failure::{Category, Failure};
use chandler_source::{ExpectedIdentity, Signers, SignersSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::extension::ConfigMapKey;

/// Reads the signers of a catalog. Returns `None` if it requires no signatures.
pub async fn catalog_signers(
    client: &Client,
    namespace: &str,
    spec: &ExtensionCatalogSpec,
) -> Result<Option<Arc<Signers>>, Failure> {
    let Some(verify) = &spec.verify else { return Ok(None) };
    required_signers(client, namespace, verify, "spec.verify of the catalog").await.map(Some)
}

/// Reads the signers that `verify` requires. `field` names it in messages.
pub async fn required_signers(
    client: &Client,
    namespace: &str,
    verify: &Verification,
    field: &str,
) -> Result<Arc<Signers>, Failure> {
    let invalid =
        |problem: &str| Failure::new(Category::VerificationFailed, format!("{field} is invalid: {problem}"));
    let Verification { verifier: _, keys, identities, trusted_root } = verify;
    let keys = match keys {
        Some(secret) => {
            public_keys(client, namespace, &secret.name).await.map_err(|problem| invalid(&problem))?
        }
        None => Vec::new(),
    };
    let trusted_root = match trusted_root {
        Some(reference) => {
            let (name, key) = (reference.name.clone(), reference.key.clone());
            let from = ConfigMapKey { namespace: namespace.to_owned(), name, key };
            Some(from.text(client).await.map_err(|error| invalid(&format!("ConfigMap {from}: {error}")))?)
        }
        None => None,
    };
    let identities = identities.iter().map(identity).collect();
    let signers = Signers::new(&SignersSpec { keys, identities, trusted_root });
    signers.map(Arc::new).map_err(|error| invalid(&error.to_string()))
}

fn identity(identity: &SignerIdentity) -> ExpectedIdentity {
    let SignerIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp } = identity.clone();
    ExpectedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp }
}

/// Reads the texts of a Secret with public keys. The error says what is wrong with the Secret.
pub async fn public_keys(client: &Client, namespace: &str, name: &str) -> Result<Vec<String>, String> {
    let failure = |problem: &str| format!("Secret {namespace}/{name} {problem}");
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(|error| failure(&format!("cannot be read: {error}")))?;
    let data = found.ok_or_else(|| failure("does not exist"))?.data.unwrap_or_default();
    if data.is_empty() {
        return Err(failure("contains no public key"));
    }
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        String::from_utf8(value.0)
            .map_err(|_| failure(&format!("has a value at {key} that is not UTF-8 text")))
    };
    data.into_iter().map(text).collect()
}
