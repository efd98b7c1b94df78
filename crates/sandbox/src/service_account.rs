//! Kubeconfigs of service accounts, so that a program runs with the rights it will have and no more.

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    api::{Api, PostParams},
    config::{AuthInfo, Kubeconfig, KubeconfigError},
};

use crate::plane::{self, Plane};

/// Longer than any sandbox lives.
const TOKEN_SECONDS: i64 = 7 * 24 * 3600;

/// Why there is no kubeconfig for a ServiceAccount.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Plane(#[from] plane::Error),
    #[error("cannot get a token for ServiceAccount {namespace}/{name}: {source}")]
    Token { namespace: String, name: String, source: Box<kube::Error> },
    #[error("the plane's own kubeconfig cannot be read: {0}")]
    Read(#[from] KubeconfigError),
    #[error("the kubeconfig cannot be written: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
}

/// A kubeconfig with a fresh token of a ServiceAccount that exists.
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
