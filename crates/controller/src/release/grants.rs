//! Secrets of other namespaces may be used only with a ReferenceGrant in their namespace.

use chandler_api::grants::ReferenceGrant;
use chandler_core::{
    failure::{Category, Failure},
    grant::{self, Referrer},
    release::{ReleaseKind, SecretKey},
};
use kube::{Api, Client, api::ListParams};

/// Refuses a Secret of another namespace that has not been granted. A user who may write a release object need not be
/// allowed to read that Secret.
pub async fn check<R: ReleaseKind>(
    client: &Client,
    own_namespace: &str,
    secret: &SecretKey,
    category: Category,
) -> Result<(), Failure> {
    let SecretKey { namespace, name } = secret;
    if namespace == own_namespace {
        return Ok(());
    }
    let (group, kind) = R::REFERRER;
    let refusal = |why: &str| {
        let message = format!(
            "Secret {namespace}/{name} {why}: create a ReferenceGrant in namespace {namespace} that lets {kind} of \
             namespace {own_namespace} use it, or copy the Secret to {own_namespace} and refer to it there"
        );
        Failure::new(category, message)
    };
    let grants = Api::<ReferenceGrant>::namespaced(client.clone(), namespace)
        .list(&ListParams::default())
        .await
        .map_err(|error| {
            refusal(&format!("is in another namespace, whose grants cannot be read ({error})"))
        })?;
    let referrer = Referrer { group, kind, namespace: own_namespace };
    if grant::permits(grants.items.iter().map(|grant| &grant.spec), referrer, name) {
        Ok(())
    } else {
        Err(refusal("is in another namespace, which has not granted it"))
    }
}
