//! Resolves the inputs of a release: package, values and options. What the status already records is not resolved again.

use std::sync::Arc;

use chandler_api::{
    capi::ContractReference,
    status::{PackageRecord, ReleaseStatus, ValuesRecord},
};
use chandler_core::{
    digest::{self, Digest, InputDigest},
    failure::{Category, Failure},
    package_format::PackageFormat,
    release::{Desired, ReleaseKind, SourceFolder, VALUES_KEY, Values, check_same_tool},
    url_login::without_logins,
};
use chandler_source::{Access, ResolvedPackage, Signers, StoredPackage};
use chandler_tool::{PackageFile, PackageTool, ReleaseDetails};

use super::{ReleaseContext, secrets::unusable};
use crate::{placement::FollowedPackage, queue::outside_of_limit};

/// The inputs of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    pub digest: InputDigest,
    pub package: PackageRecord,
    pub values: ValuesRecord,
    /// Set if the package reads the cluster's capabilities.
    pub kubernetes_minor: Option<String>,
}

impl Inputs {
    /// Returns whether a revision by another client has the same package and values, so that it is adopted.
    pub fn are_those_of(&self, details: &ReleaseDetails, desired: &Desired) -> bool {
        // The version of a package in a Source may stay the same when its content changes.
        desired.access.folder.is_none()
            && details.package_name == desired.package.name
            && details.package_version == self.package.version
            && details.values.as_ref().is_some_and(|values| values.as_str() == self.values.canonical)
    }
}

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Resolves the inputs of `desired`.
    pub async fn inputs(
        &self,
        desired: &Desired,
        known: &ReleaseStatus,
        control_plane: Option<&ContractReference>,
    ) -> Result<Inputs, Failure> {
        let package = self.package(desired, known.package.as_ref()).await?;
        let tool = self.tools.for_format(&package_format(&package)).await?;
        let tool = tool.in_namespace(&desired.cluster.namespace);
        let values = self.values(desired, known.values.as_ref(), &tool).await?;
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

    /// Refuses a package for another tool than that of the `installed` one.
    pub async fn check_tool(
        &self,
        installed: Option<&PackageRecord>,
        resolved: &PackageRecord,
    ) -> Result<(), Failure> {
        let (installed, format) = (installed.map(package_format), package_format(resolved));
        let Some(installed) = installed.filter(|installed| *installed != format) else { return Ok(()) };
        let before = self.tools.for_format(&installed).await?.id();
        let now = self.tools.for_format(&format).await?.id();
        check_same_tool(&resolved.reference, (&installed, before), (&format, now))
    }

    /// Returns the version that a rollout gives to a release that follows the newest one.
    pub async fn followed_version(&self, followed: FollowedPackage) -> Result<String, Failure> {
        let FollowedPackage { desired, installed, of_rollout } = followed;
        if let Some(installed) = &installed {
            self.check_installed(&desired, installed).await?;
        }
        if let Some(version) = of_rollout {
            return Ok(version);
        }
        let desired = self.catalogs.located(desired).await?;
        self.tenancies.of(&desired.cluster.namespace).await?.check_release(&desired)?;
        let access = self.access(&desired).await?;
        Ok(self.resolve(&desired, &access).await?.version)
    }

    /// Returns the package of resolved inputs with its signature checked against the current policy. Downloads it if it is
    /// not in the store.
    pub async fn stored_package(
        &self,
        desired: &Desired,
        package: &PackageRecord,
    ) -> Result<StoredPackage, Failure> {
        if let Some(folder) = &desired.access.folder {
            return self.source_packages.stored(folder, &desired.cluster.namespace).await;
        }
        let digest = parsed(&package.digest)?;
        let signers = self.signers(desired).await?;
        let owner = self.catalogs.owner(&desired.cluster.namespace, desired.access.catalog.as_ref());
        let format = package_format(package);
        if let Some(stored) =
            self.packages.stored(owner, &desired.package, &digest, &format, signers.as_ref())
        {
            return Ok(stored);
        }
        let access = self.access(desired).await?;
        let resolved = self.resolve(desired, &access).await?;
        let stored = outside_of_limit(self.packages.fetch(&resolved, &access)).await?;
        if stored.digest == digest {
            return Ok(stored);
        }
        let message = changed(desired, &digest.to_string(), &stored.digest.to_string());
        Err(Failure::new(Category::InvalidPackage, message))
    }

    /// Resolves the package. A pinned version that was resolved before is not resolved again.
    async fn package(
        &self,
        desired: &Desired,
        known: Option<&PackageRecord>,
    ) -> Result<PackageRecord, Failure> {
        let reference = desired.package.to_string();
        let known = known.map(without_login);
        let known = known.as_ref();
        if let Some(known) =
            known.filter(|known| known.reference == reference && desired.package.version.is_some())
        {
            return Ok(known.clone());
        }
        if let Some(folder) = &desired.access.folder {
            return self.folder_package(desired, folder, known, reference).await;
        }
        let access = self.access(desired).await?;
        if let Some(known) = known.filter(|known| known.reference == reference) {
            self.check_installed(desired, &known.version).await?;
        }
        let resolved = match (self.resolve(desired, &access).await, known) {
            (Ok(resolved), _) => resolved,
            // The source is unavailable: the known version stays.
            (Err(error), Some(known)) if known.reference == reference => {
                tracing::warn!(cluster = %desired.cluster, release = %desired.release, %error, "keeping the known version");
                return Ok(known.clone());
            }
            (Err(error), _) => return Err(error),
        };
        let announced = resolved.digest.as_ref().map(ToString::to_string);
        if let Some(known) = known.filter(|known| Some(&known.digest) == announced.as_ref()) {
            return Ok(PackageRecord { reference, ..known.clone() });
        }
        let same = known.filter(|known| known.reference == reference && known.version == resolved.version);
        if let (Some(known), Some(announced)) = (same, announced) {
            return Ok(self.keep_republished(desired, known, &announced));
        }
        let stored = outside_of_limit(self.packages.fetch(&resolved, &access)).await?;
        if let Some(known) = same.filter(|known| known.digest != stored.digest.as_str()) {
            return Ok(self.keep_republished(desired, known, stored.digest.as_str()));
        }
        self.inspected(desired, &stored, reference).await
    }

    /// Fails if the catalog does not offer the installed version any more: instead of another version, which the filter would choose,
    /// the release keeps its own and gets a condition.
    async fn check_installed(&self, desired: &Desired, version: &str) -> Result<(), Failure> {
        let (own, catalog) = (&desired.cluster.namespace, desired.access.catalog.as_ref());
        self.catalogs.check_installed(own, catalog, (&desired.package.name, version)).await
    }

    /// Resolves the package to a version that exists, at an address that AddonTenancies allow.
    async fn resolve(&self, desired: &Desired, access: &Access) -> Result<ResolvedPackage, Failure> {
        let (own, catalog) = (&desired.cluster.namespace, desired.access.catalog.as_ref());
        let resolved = self.catalogs.resolve(&self.packages, own, catalog, &desired.package, access).await?;
        if let Some(url) = resolved.archive_url() {
            self.tenancies.of(own).await?.check_archive(desired, url)?;
        }
        Ok(resolved)
    }

    /// Resolves the package that is pinned for a folder of a Source.
    async fn folder_package(
        &self,
        desired: &Desired,
        folder: &SourceFolder,
        known: Option<&PackageRecord>,
        reference: String,
    ) -> Result<PackageRecord, Failure> {
        let pinned = &folder.pinned;
        let is_same = |known: &&PackageRecord| known.digest == pinned.digest && known.format == pinned.format;
        if let Some(known) = known.filter(is_same) {
            return Ok(PackageRecord { reference, ..known.clone() });
        }
        let stored = self.source_packages.stored(folder, &desired.cluster.namespace).await?;
        self.inspected(desired, &stored, reference).await
    }

    /// Lets the tool read a package.
    async fn inspected(
        &self,
        desired: &Desired,
        stored: &StoredPackage,
        reference: String,
    ) -> Result<PackageRecord, Failure> {
        let tool = self.tools.for_format(stored.format()).await?;
        self.metrics.tool_call("inspect");
        let tool = tool.in_namespace(&desired.cluster.namespace);
        let info = outside_of_limit(tool.inspect(&file(stored))).await?;
        Ok(PackageRecord {
            reference,
            version: info.version,
            digest: stored.digest.to_string(),
            reads_capabilities: info.reads_capabilities,
            format: stored.format().to_stored(),
        })
    }

    /// Returns the known package although its version was published again with other content, and warns once.
    fn keep_republished(&self, desired: &Desired, known: &PackageRecord, found: &str) -> PackageRecord {
        let (cluster, release) = (&desired.cluster, &desired.release);
        let message = changed(desired, &known.digest, found);
        let warning = format!("{cluster} {release} {message}");
        if self.republished.lock().insert(warning) {
            self.metrics.republished();
            tracing::warn!(%cluster, %release, "{message}");
            for object in self.releases.claiming(cluster, release) {
                self.events.warning(&*object, "PackageChanged", &message);
            }
        }
        known.clone()
    }

    async fn values(
        &self,
        desired: &Desired,
        known: Option<&ValuesRecord>,
        tool: &PackageTool,
    ) -> Result<ValuesRecord, Failure> {
        let text = match &desired.values {
            Values::Text(text) => Digest::of(text).to_string(),
            Values::Secret(_, digest) | Values::Unconfirmed(digest) => digest.clone(),
        };
        if let Some(known) = known.filter(|known| known.text == text) {
            return Ok(known.clone());
        }
        let values = self.values_text(desired).await?;
        self.metrics.tool_call("canonicalize");
        let canonical = outside_of_limit(tool.canonical_digest(&values)).await?;
        Ok(ValuesRecord { text, canonical: canonical.to_string() })
    }

    /// Returns the values as text.
    pub async fn values_text(&self, desired: &Desired) -> Result<String, Failure> {
        let (secret, digest) = match &desired.values {
            Values::Text(text) => return Ok(text.clone()),
            Values::Unconfirmed(_) => {
                let why = "spec.values refers to a Secret that the annotation chandler.dev/values-secret does not name; \
                           the HelmChartProxy that owns the object sets both";
                return Err(Failure::new(Category::InvalidValues, why));
            }
            Values::Secret(secret, digest) => (secret, digest),
        };
        let (own, category) = (&desired.cluster.namespace, Category::InvalidValues);
        let text = self.secrets.value::<R>(own, secret, VALUES_KEY, category).await?;
        let text = String::from_utf8(text)
            .map_err(|_| unusable(secret, category, "contains values that are not text"))?;
        if Digest::of(&text).to_string() != *digest {
            let why =
                "does not contain the values with the digest that the release names; they are being written";
            return Err(unusable(secret, Category::Timeout, why));
        }
        Ok(text)
    }

    /// Returns the signers that the package's catalog requires.
    async fn signers(&self, desired: &Desired) -> Result<Option<Arc<Signers>>, Failure> {
        match &desired.access.catalog {
            Some(catalog) => self.catalogs.signers(&desired.cluster.namespace, catalog).await,
            None => Ok(None),
        }
    }

    async fn access(&self, desired: &Desired) -> Result<Access, Failure> {
        let wanted = &desired.access;
        let own = &desired.cluster.namespace;
        if let Some(catalog) = &wanted.catalog {
            return self.catalogs.access(own, catalog).await;
        }
        let ca_pem = match &wanted.ca {
            Some(secret) => {
                Some(self.secrets.value::<R>(own, secret, "ca.crt", Category::GetCaCertificateFailed).await?)
            }
            None => None,
        };
        let credentials = match &wanted.credentials {
            Some((secret, key)) => Some(self.secrets.credentials::<R>(own, secret, key).await?),
            None => None,
        };
        let insecure_skip_tls_verify = wanted.insecure_skip_tls_verify;
        Ok(Access { namespace: own.clone(), ca_pem, credentials, insecure_skip_tls_verify, signers: None })
    }
}

/// Returns the format of a resolved package.
pub fn package_format(package: &PackageRecord) -> PackageFormat {
    PackageFormat::stored(package.format.as_deref())
}

/// Returns a record without the login that older managers have kept in its reference.
fn without_login(record: &PackageRecord) -> PackageRecord {
    PackageRecord { reference: without_logins(&record.reference).into_owned(), ..record.clone() }
}

fn changed(desired: &Desired, was: &str, is: &str) -> String {
    format!(
        "{} has changed since it was resolved: it was {was}, now it is {is}; publish a new version instead",
        desired.package
    )
}

/// Returns the package as its tool reads it.
pub fn file(stored: &StoredPackage) -> PackageFile {
    PackageFile {
        path: stored.path().to_owned(),
        digest: stored.digest.clone(),
        format: stored.format().clone(),
    }
}

fn parsed(digest: &str) -> Result<Digest, Failure> {
    Digest::parse(digest)
        .ok_or_else(|| Failure::new(Category::Internal, format!("`{digest}` in the status is not a digest")))
}
