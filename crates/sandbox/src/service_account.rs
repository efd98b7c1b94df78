//! Kubeconfigs of a ServiceAccount, to run a program with the permissions that it has in a real installation.

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    api::{Api, PostParams},
    config::{AuthInfo, Kubeconfig, KubeconfigError},
};

use crate::plane::{self, Plane};

/// Longer than a sandbox is used.
const TOKEN_SECONDS: i64 = 7 * 24 * 3600;

/// An error while creating a kubeconfig for a ServiceAccount.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Plane(#[from] plane::Error),
    #[error("cannot get a token for ServiceAccount {namespace}/{name}: {source}")]
    Token { namespace: String, name: String, source: Box<kube::Error> },
    #[error("the kubeconfig of the control plane cannot be read: {0}")]
    Read(#[from] KubeconfigError),
    #[error("the kubeconfig cannot be written: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
}

/// Returns a kubeconfig with a new token of an existing ServiceAccount.
pub async fn kubeconfig(plane: &Plane, namespace: &str, name: &str) -> Result<String, Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await?, namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(|source| Error::Token {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source: Box::new(source),
        })?
        .status
        .map(|status| status.token)
        .unwrap_or_default();
    let mut config = Kubeconfig::from_yaml(plane.kubeconfig())?;
    for user in &mut config.auth_infos {
        user.auth_info = Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
    }
    Ok(serde_saphyr::to_string(&config)?)
}
