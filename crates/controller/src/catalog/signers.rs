//! Who has to have signed a catalog's packages: from a Secret and a ConfigMap beside the catalog.

use std::sync::Arc;

use chandler_api::extensions::{ExtensionCatalogSpec, SignerIdentity, Verification};
use chandler_core::failure::{Category, Failure};
use chandler_source::{ExpectedIdentity, Signers, SignersSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::extension::ConfigMapKey;

/// None: the catalog demands no signatures.
pub async fn catalog_signers(
    client: &Client,
    namespace: &str,
    spec: &ExtensionCatalogSpec,
) -> Result<Option<Arc<Signers>>, Failure> {
    let Some(verify) = &spec.verify else { return Ok(None) };
    let Verification { verifier: _, keys, identities, trusted_root } = verify;
    let keys = match keys {
        Some(secret) => public_keys(client, namespace, &secret.name).await?,
        None => Vec::new(),
    };
    let trusted_root = match trusted_root {
        Some(reference) => {
            let (name, key) = (reference.name.clone(), reference.key.clone());
            let from = ConfigMapKey { namespace: namespace.to_owned(), name, key };
            Some(from.text(client).await.map_err(|why| unusable(&format!("ConfigMap {from}: {why}")))?)
        }
        None => None,
    };
    let identities = identities.iter().map(wanted).collect();
    let signers = Signers::new(&SignersSpec { keys, identities, trusted_root });
    signers.map(|signers| Some(Arc::new(signers))).map_err(|error| unusable(&error.to_string()))
}

fn wanted(identity: &SignerIdentity) -> ExpectedIdentity {
    let SignerIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp } = identity.clone();
    ExpectedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp }
}

async fn public_keys(client: &Client, namespace: &str, name: &str) -> Result<Vec<String>, Failure> {
    let named = |why: &str| unusable(&format!("Secret {namespace}/{name} {why}"));
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(|error| named(&format!("cannot be read: {error}")))?;
    let data = found.ok_or_else(|| named("does not exist"))?.data.unwrap_or_default();
    if data.is_empty() {
        return Err(named("holds no public key"));
    }
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        String::from_utf8(value.0).map_err(|_| named(&format!("holds something at {key} that is no text")))
    };
    data.into_iter().map(text).collect()
}

fn unusable(why: &str) -> Failure {
    Failure::new(Category::VerificationFailed, format!("spec.verify of the catalog cannot be used: {why}"))
}
