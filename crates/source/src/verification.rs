//! Verifies the required signatures of packages before they are handed out.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use chandler_core::{
    digest::Digest, package_format::PackageFormat, release::PackageReference, url_login::WithoutLogin,
};
use reqwest::Url;

use crate::{
    Access, Artifact, Packages, PolicyUnavailable, ResolvedPackage, SignaturePolicy, Signers, SourceError,
    StoredPackage, VerificationError,
    access_digest::AccessDigest,
    oci::{Registries, artifact_url},
    packages::Location,
    repositories::Repositories,
    signature::{Requirement, verify},
    single_flight::SingleFlightCache,
    store::Claim,
};

/// With more verified packages than this, all are removed from the cache and verified again on demand.
const MAX_VERIFIED: usize = 10_000;

/// Identifies a verification: base URL and digest of the manifest, the signers, and the access.
type VerificationKey = (Url, Digest, Arc<Signers>, AccessDigest);

/// The signature policy of the platform, and the packages that are already verified.
#[derive(Debug)]
pub(crate) struct Verification {
    policy: RwLock<Result<Arc<SignaturePolicy>, PolicyUnavailable>>,
    running: SingleFlightCache<VerificationKey, ()>,
    /// Digests and formats of verified packages, and digests of their signers. The signature covers the format too.
    verified: Mutex<HashSet<(Digest, PackageFormat, Digest)>>,
}

impl Verification {
    pub fn new(cache_ttl: Duration) -> Self {
        Self {
            policy: RwLock::new(Ok(Arc::default())),
            running: SingleFlightCache::new(cache_ttl),
            verified: Mutex::default(),
        }
    }

    fn policy(&self) -> Result<Arc<SignaturePolicy>, SourceError> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Ok(policy.clone()?)
    }

    fn is_verified(&self, package: &Digest, format: &PackageFormat, signers: &Signers) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.contains(&(package.clone(), format.clone(), signers.digest().clone()))
    }

    fn add_verified(&self, package: &Digest, format: &PackageFormat, signers: &Signers) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= MAX_VERIFIED {
            verified.clear();
        }
        verified.insert((package.clone(), format.clone(), signers.digest().clone()));
    }
}

impl Packages {
    /// Sets the signature policy of the platform. If it is unavailable, no package is handed out.
    pub fn set_signature_policy(&self, policy: Result<SignaturePolicy, PolicyUnavailable>) {
        let mut current = self.verification.policy.write().unwrap_or_else(PoisonError::into_inner);
        *current = policy.map(Arc::new);
    }

    /// Returns the package with this digest if it is in the store, the namespace that owns the source has got it from there before, and
    /// it has the required signatures. `signers` are the signers that a catalog requires in addition to the policy of the platform.
    pub fn stored(
        &self,
        namespace: &str,
        reference: &PackageReference,
        digest: &Digest,
        format: &PackageFormat,
        signers: Option<&Arc<Signers>>,
    ) -> Option<StoredPackage> {
        let (scheme, base_url) = scheme_and_base_url(reference).ok()?;
        let required = self.required_signers(scheme, &base_url, signers).ok()?;
        let is_verified =
            required.iter().all(|signers| self.verification.is_verified(digest, format, signers));
        if is_verified {
            let claim = Claim::new(namespace, base_url.as_str(), None);
            self.store.get_proven(digest, format, &claim).inspect(|_| self.package_hits.record(true))
        } else {
            None
        }
    }

    /// Fails if the policy of the platform requires signatures for packages of the URL of a Source, unless it is an artifact
    /// that was verified with the signers of the policy. `signers` is what [`Packages::artifact_signers`] returned then.
    pub fn check_files(&self, url: &str, signers: Option<&str>) -> Result<(), SourceError> {
        let is_artifact = url.starts_with("oci://");
        let (scheme, base_url) = if is_artifact {
            ("oci", artifact_url(url)?)
        } else {
            ("https", Url::parse(url).map_err(|_| SourceError::invalid_url(url))?)
        };
        let Requirement::SignedBy(required) = self.verification.policy()?.requirement(scheme, &base_url)
        else {
            return Ok(());
        };
        if !is_artifact {
            return Err(SourceError::Unverifiable { package: WithoutLogin(url).to_string() });
        }
        let mut verified = signers.unwrap_or_default().split(' ');
        if verified.any(|digest| digest == required.digest().as_str()) {
            Ok(())
        } else {
            Err(SourceError::NotVerifiedYet { url: url.to_owned() })
        }
    }

    /// Returns the signers whose signatures an artifact must have: digests of those of the policy and of `access`, with
    /// spaces between them. `None` if no signature is required.
    pub fn artifact_signers(&self, url: &str, access: &Access) -> Result<Option<String>, SourceError> {
        let required = self.required_signers("oci", &artifact_url(url)?, access.signers.as_ref())?;
        let digests: Vec<_> = required.iter().map(|signers| signers.digest().as_str()).collect();
        Ok((!digests.is_empty()).then(|| digests.join(" ")))
    }

    /// Verifies the signatures that an artifact must have.
    pub(crate) async fn verify_artifact(
        &self,
        artifact: &Artifact,
        access: &Access,
    ) -> Result<(), SourceError> {
        let Artifact { base_url, digest, .. } = artifact;
        for signers in self.required_signers("oci", base_url, access.signers.as_ref())? {
            let key = (base_url.clone(), digest.clone(), signers.clone(), AccessDigest::from(access));
            let verify = |_| self.verify_manifest(base_url, digest, &signers, access);
            self.verification.running.get(key, verify).await?;
        }
        Ok(())
    }

    pub(crate) async fn verify(
        &self,
        resolved: &ResolvedPackage,
        access: &Access,
    ) -> Result<(), SourceError> {
        let (scheme, base_url) = match &resolved.location {
            Location::Https { base_url, .. } => ("https", base_url),
            Location::Oci { base_url, .. } => ("oci", base_url),
        };
        for signers in self.required_signers(scheme, base_url, access.signers.as_ref())? {
            let (Location::Oci { manifest, .. }, Some(package)) = (&resolved.location, &resolved.digest)
            else {
                return Err(SourceError::Unverifiable { package: base_url.to_string() });
            };
            if self.verification.is_verified(package, &resolved.format, &signers) {
                continue;
            }
            let key = (base_url.clone(), manifest.clone(), signers.clone(), AccessDigest::from(access));
            let verify = |_| self.verify_manifest(base_url, manifest, &signers, access);
            self.verification.running.get(key, verify).await?;
            self.verification.add_verified(package, &resolved.format, &signers);
        }
        Ok(())
    }

    /// Fetches the signatures of a manifest from the registry and verifies them. Bundles need more requests, so they are only
    /// fetched if no simple signature is valid.
    async fn verify_manifest(
        &self,
        base_url: &Url,
        manifest: &Digest,
        signers: &Signers,
        access: &Access,
    ) -> Result<(), SourceError> {
        let mut session = self.registries.session(base_url, access)?;
        let simple = self.registries.simple_signatures(&mut session, manifest).await?;
        let Err(error) = verify(&simple, manifest, signers) else { return Ok(()) };
        let bundles = self.registries.bundles(&mut session, manifest).await?;
        let verified = verify(&bundles, manifest, signers).map_err(|other| error.or_more_specific(other));
        verified.map_err(|error| unverified(base_url, manifest, error))
    }

    fn required_signers(
        &self,
        scheme: &str,
        base_url: &Url,
        additional: Option<&Arc<Signers>>,
    ) -> Result<Vec<Arc<Signers>>, SourceError> {
        let platform = match self.verification.policy()?.requirement(scheme, base_url) {
            Requirement::NotRequired => None,
            Requirement::SignedBy(signers) => Some(signers),
        };
        Ok(platform.into_iter().chain(additional.cloned()).collect())
    }
}

fn scheme_and_base_url(reference: &PackageReference) -> Result<(&'static str, Url), SourceError> {
    if reference.repository.starts_with("oci://") {
        Ok(("oci", Registries::base_url(reference)?))
    } else {
        Ok(("https", Repositories::base_url(reference)?))
    }
}

/// Names the package as `cosign sign` expects it: `registry.example/charts/hello@sha256:…`.
fn unverified(base_url: &Url, manifest: &Digest, error: VerificationError) -> SourceError {
    let name =
        base_url.as_str().trim_start_matches("https://").trim_end_matches('/').replacen("/v2/", "/", 1);
    SourceError::Unverified { package: format!("{name}@{manifest}"), error }
}
