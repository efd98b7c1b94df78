//! Access to the repository of a catalog or of a Source, from Secrets in its own namespace only.

use std::collections::BTreeMap;

use chandler_api::extensions::{ExtensionCatalogSpec, KeyReference};
use chandler_core::{
    failure::{Category, Failure},
    login_hosts::{HOSTS_ANNOTATION, LoginHosts},
};
use chandler_source::{Access, Credentials};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};

use super::signers::catalog_signers;

/// Reads the certificate authority and the credentials of a catalog.
pub async fn catalog_access(
    client: &Client,
    namespace: &str,
    spec: &ExtensionCatalogSpec,
) -> Result<Access, Failure> {
    let (authority, credentials) = (spec.certificate_authority.as_ref(), spec.credentials.as_ref());
    let access = repository_access(client, namespace, authority, credentials).await?;
    let signers = catalog_signers(client, namespace, spec).await?;
    Ok(Access { signers, ..access })
}

/// Reads a certificate authority and credentials.
pub async fn repository_access(
    client: &Client,
    namespace: &str,
    authority: Option<&KeyReference>,
    credentials: Option<&KeyReference>,
) -> Result<Access, Failure> {
    let secrets = Secrets { api: Api::namespaced(client.clone(), namespace), namespace };
    let ca_pem = match authority {
        Some(reference) => secrets.authority(reference).await?,
        None => None,
    };
    let credentials = match credentials {
        Some(reference) => secrets.credentials(reference).await?,
        None => None,
    };
    Ok(Access { namespace: namespace.to_owned(), ca_pem, credentials, ..Access::default() })
}

struct Secrets<'a> {
    api: Api<Secret>,
    namespace: &'a str,
}

type Data = BTreeMap<String, Vec<u8>>;

impl Secrets<'_> {
    async fn authority(&self, reference: &KeyReference) -> Result<Option<Vec<u8>>, Failure> {
        let category = Category::GetCaCertificateFailed;
        let Some((mut data, _)) = self.data(reference, category).await? else { return Ok(None) };
        let found = data.remove(&reference.key);
        if found.is_none() && !reference.optional {
            return Err(self.unusable(reference, category, &format!("has no key {}", reference.key)));
        }
        Ok(found)
    }

    async fn credentials(&self, reference: &KeyReference) -> Result<Option<Credentials>, Failure> {
        let category = Category::GetCredentialsFailed;
        let Some((data, hosts)) = self.data(reference, category).await? else { return Ok(None) };
        match Credentials::from_secret(data, &reference.key) {
            Ok(credentials) => Ok(Some(credentials.limited_to(hosts))),
            Err(_) if reference.optional => Ok(None),
            Err(error) => Err(self.unusable(reference, category, &error.to_string())),
        }
    }

    /// Returns the data of a Secret and the hosts that its login is for, or `None` if it is optional and does not exist.
    async fn data(
        &self,
        reference: &KeyReference,
        category: Category,
    ) -> Result<Option<(Data, Option<LoginHosts>)>, Failure> {
        let found = self.api.get_opt(&reference.name).await;
        match found
            .map_err(|error| self.unusable(reference, category, &format!("cannot be read: {error}")))?
        {
            Some(secret) => {
                let hosts = login_hosts(&secret);
                let data = secret.data.unwrap_or_default().into_iter();
                Ok(Some((data.map(|(key, value)| (key, value.0)).collect(), hosts)))
            }
            None if reference.optional => Ok(None),
            None => Err(self.unusable(reference, category, "does not exist")),
        }
    }

    fn unusable(&self, reference: &KeyReference, category: Category, why: &str) -> Failure {
        Failure::new(category, format!("Secret {}/{} {why}", self.namespace, reference.name))
    }
}

/// Returns the hosts that the login of a Secret may be sent to. `None` means any host.
pub fn login_hosts(secret: &Secret) -> Option<LoginHosts> {
    let named = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    Some(LoginHosts::parse(named, secret.annotations().get(HOSTS_ANNOTATION)?))
}
