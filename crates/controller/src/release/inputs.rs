//! Finds out everything that decides what a release looks like. What the status already knows is not looked up again.

use chandler_api::{
    capi::ContractReference,
    status::{PackageRecord, ReleaseStatus, ValuesRecord},
};
use chandler_core::{
    digest::{self, Digest, InputDigest},
    failure::{Category, Failure},
    release::{Desired, ReleaseFace, SecretKey},
};
use chandler_source::Access;
use chandler_tool::PackageFile;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::{ReleaseContext, grants};

/// Everything that decides what a release looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    pub digest: InputDigest,
    pub package: PackageRecord,
    pub values: ValuesRecord,
    /// Where the package reads what the cluster is.
    pub kubernetes_minor: Option<String>,
}

impl<R: ReleaseFace> ReleaseContext<R> {
    /// Finds out the inputs of `desired`.
    pub(super) async fn inputs(
        &self,
        desired: &Desired,
        known: &ReleaseStatus,
        control_plane: Option<&ContractReference>,
    ) -> Result<Inputs, Failure> {
        let package = self.package(desired, known.package.as_ref()).await?;
        let values = self.values(desired, known.values.as_ref()).await?;
        let kubernetes_minor = if package.reads_capabilities {
            self.kubernetes_minor(&desired.cluster, control_plane).await?
        } else {
            None
        };
        let digest = InputDigest::of(&digest::Inputs {
            package: &parsed(&package.digest)?,
            values: &parsed(&values.canonical)?,
            release: &desired.release,
            rendering: &desired.rendering,
            kubernetes_minor: kubernetes_minor.as_deref(),
        });
        Ok(Inputs { digest, package, values, kubernetes_minor })
    }

    /// The package file of resolved inputs; downloaded if the store has lost it.
    pub(super) async fn package_file(
        &self,
        desired: &Desired,
        package: &PackageRecord,
    ) -> Result<PackageFile, Failure> {
        let digest = parsed(&package.digest)?;
        if let Some(path) = self.packages.stored(&digest) {
            return Ok(PackageFile { path, digest });
        }
        let access = self.access(desired).await?;
        let resolved = self.packages.resolve(&desired.package, &access).await?;
        let (found, path) = self.packages.fetch(&resolved, &access).await?;
        if found == digest {
            return Ok(PackageFile { path, digest });
        }
        Err(Failure::new(
            Category::InvalidPackage,
            format!(
                "{} has changed since it was resolved: it was {digest}, now it is {found}; publish a new version instead",
                desired.package
            ),
        ))
    }

    /// A pinned version that was resolved before stays what it was, whatever its source says today.
    async fn package(
        &self,
        desired: &Desired,
        known: Option<&PackageRecord>,
    ) -> Result<PackageRecord, Failure> {
        let reference = desired.package.to_string();
        if let Some(known) =
            known.filter(|known| known.reference == reference && desired.package.version.is_some())
        {
            return Ok(known.clone());
        }
        let access = self.access(desired).await?;
        let resolved = match (self.packages.resolve(&desired.package, &access).await, known) {
            (Ok(resolved), _) => resolved,
            // The newest version cannot be asked for now: the one that runs stays.
            (Err(error), Some(known)) if known.reference == reference => {
                tracing::warn!(cluster = %desired.cluster, release = %desired.release, %error, "keeping the known version");
                return Ok(known.clone());
            }
            (Err(error), _) => return Err(error.into()),
        };
        let announced = resolved.digest.as_ref().map(ToString::to_string);
        if let Some(known) = known.filter(|known| Some(&known.digest) == announced.as_ref()) {
            return Ok(PackageRecord { reference, ..known.clone() });
        }
        let (digest, path) = self.packages.fetch(&resolved, &access).await?;
        self.metrics.tool_call("inspect");
        let info = self.tool.inspect(&PackageFile { path, digest: digest.clone() }).await?;
        Ok(PackageRecord {
            reference,
            version: info.version,
            digest: digest.to_string(),
            reads_capabilities: info.reads_capabilities,
        })
    }

    async fn values(&self, desired: &Desired, known: Option<&ValuesRecord>) -> Result<ValuesRecord, Failure> {
        let text = Digest::of(&desired.values).to_string();
        if let Some(known) = known.filter(|known| known.text == text) {
            return Ok(known.clone());
        }
        self.metrics.tool_call("canonicalize");
        let canonical = self.tool.canonical_digest(&desired.values).await?;
        Ok(ValuesRecord { text, canonical: canonical.to_string() })
    }

    async fn access(&self, desired: &Desired) -> Result<Access, Failure> {
        let wanted = &desired.access;
        let ca_pem = match &wanted.ca {
            Some(secret) => {
                Some(self.secret(desired, secret, "ca.crt", Category::GetCaCertificateFailed).await?)
            }
            None => None,
        };
        let docker_config = match &wanted.credentials {
            Some((secret, key)) => {
                Some(self.secret(desired, secret, key, Category::GetCredentialsFailed).await?)
            }
            None => None,
        };
        Ok(Access { ca_pem, docker_config, insecure_skip_tls_verify: wanted.insecure_skip_tls_verify })
    }

    /// A value of a Secret that the release may use.
    async fn secret(
        &self,
        desired: &Desired,
        secret: &SecretKey,
        key: &str,
        category: Category,
    ) -> Result<Vec<u8>, Failure> {
        grants::check::<R>(&self.client, &desired.cluster.namespace, secret, category).await?;
        secret_value(&self.client, secret, key, category).await
    }
}

async fn secret_value(
    client: &Client,
    secret: &SecretKey,
    key: &str,
    category: Category,
) -> Result<Vec<u8>, Failure> {
    let SecretKey { namespace, name } = secret;
    let invalid = |what: String| Failure::new(category, format!("Secret {namespace}/{name} {what}"));
    let found = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
        .map_err(|error| invalid(format!("cannot be read: {error}")))?
        .ok_or_else(|| invalid("does not exist".to_owned()))?;
    let value = found.data.and_then(|mut data| data.remove(key));
    value.map(|value| value.0).ok_or_else(|| invalid(format!("has no key {key}")))
}

fn parsed(digest: &str) -> Result<Digest, Failure> {
    Digest::parse(digest)
        .ok_or_else(|| Failure::new(Category::Internal, format!("`{digest}` in the status is not a digest")))
}
