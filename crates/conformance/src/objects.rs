//! Objects that a case reads and creates without the tool.

use std::{fmt::Debug, time::Duration};

use chandler_tool::generated::tool::{Auth, Target, auth};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap, Namespace, ServiceAccount},
        rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
    },
};
use kube::{
    Api, Resource,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{CaseError, context::Context};

pub const POLL: Duration = Duration::from_millis(100);
/// How long a case waits for a change on the cluster.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Context {
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.environment.client.clone(), &self.namespace)
    }

    pub async fn create_namespace(&self) -> Result<(), CaseError> {
        let namespaces: Api<Namespace> = Api::all(self.environment.client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(self.namespace.clone());
        namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// Returns an object of the case's namespace, which must exist.
    pub async fn get<K>(&self, name: &str) -> Result<K, CaseError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let found = self.find(name).await?;
        let kind = K::kind(&());
        found.ok_or_else(|| CaseError::Violation(format!("there is no {kind} {name}")))
    }

    pub async fn find<K>(&self, name: &str) -> Result<Option<K>, CaseError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        Ok(self.api::<K>().get_opt(name).await?)
    }

    /// Creates a ConfigMap that belongs to no release.
    pub async fn create_config(&self, name: &str) -> Result<ConfigMap, CaseError> {
        let mut config = ConfigMap::default();
        config.metadata.name = Some(name.to_owned());
        config.data = Some([("values".to_owned(), "by hand".to_owned())].into());
        Ok(self.api().create(&PostParams::default(), &config).await?)
    }

    /// Changes an object as another field manager.
    pub async fn patch<K>(&self, name: &str, patch: &serde_json::Value) -> Result<(), CaseError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let manager = PatchParams::apply("someone-else");
        self.api::<K>().patch(name, &manager, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Returns the API of any kind in the case's namespace.
    pub fn dynamic(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.environment.client.clone(), &self.namespace, resource)
    }

    /// Creates a ServiceAccount with all permissions or with none, and returns the cluster's target with its token.
    pub async fn account(&self, name: &str, administrator: bool) -> Result<Target, CaseError> {
        let accounts: Api<ServiceAccount> = self.api();
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(name.to_owned());
        accounts.create(&PostParams::default(), &account).await?;
        if administrator {
            self.grant_all(name).await?;
        }
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        Ok(self.target_with_token(&token))
    }

    pub fn target_with_token(&self, token: &str) -> Target {
        let mut target = self.target();
        if let Some(tls) = &mut target.tls {
            tls.client_certificate_pem.clear();
            tls.client_key_pem.clear();
        }
        target.auth = Some(Auth { method: Some(auth::Method::BearerToken(token.to_owned())) });
        // A cache must not confuse the two users.
        target.cluster = format!("{}/{}", self.namespace, target.cluster.replace('/', "-"));
        target
    }

    /// Returns the user name of a ServiceAccount.
    pub fn account_user(&self, name: &str) -> String {
        format!("system:serviceaccount:{}:{name}", self.namespace)
    }

    /// Creates a Role with these rules for a ServiceAccount.
    pub async fn grant(&self, account: &str, rules: &serde_json::Value) -> Result<(), CaseError> {
        let role = json!({"metadata": {"name": account}, "rules": rules});
        let binding = json!({
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        });
        let read = |error: serde_json::Error| CaseError::Host(error.into());
        let (role, binding): (Role, RoleBinding) =
            (serde_json::from_value(role).map_err(read)?, serde_json::from_value(binding).map_err(read)?);
        self.api().create(&PostParams::default(), &role).await?;
        self.api().create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    async fn grant_all(&self, account: &str) -> Result<(), CaseError> {
        let name = format!("{}-{account}", self.namespace);
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        }))
        .map_err(|error| CaseError::Host(error.into()))?;
        let bindings: Api<ClusterRoleBinding> = Api::all(self.environment.client.clone());
        bindings.create(&PostParams::default(), &binding).await?;
        Ok(())
    }
}

/// Polls until the condition is true.
pub async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F) -> Result<(), CaseError>
where
    F: Future<Output = Result<bool, CaseError>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await? {
        ensure!(tokio::time::Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
