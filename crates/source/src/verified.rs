//! Keeps back what is not signed as it has to be.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use chandler_core::{digest::Digest, package_format::PackageFormat, release::PackageReference};
use reqwest::Url;

use crate::{
    Access, Packages, Refusal, Resolved, SignaturePolicy, Signers, SourceError, StoredPackage,
    https::Repositories,
    oci::Registries,
    packages::Location,
    shared::Shared,
    signature::{Demand, judge},
};

/// More than this are forgotten, and verified anew when they are asked for.
const REMEMBERED: usize = 10_000;

/// A question that many may ask at once: is this manifest signed by these?
type Question = (Url, Digest, Arc<Signers>, Access);

/// What is demanded, and what was found to meet it.
#[derive(Debug)]
pub(crate) struct Verified {
    /// What the platform demands, or why that is not known.
    policy: RwLock<Result<Arc<SignaturePolicy>, String>>,
    asked: Shared<Question, ()>,
    /// Digests of packages and of who signed them.
    known: Mutex<HashSet<(Digest, Digest)>>,
}

impl Verified {
    pub fn new(fresh: Duration) -> Self {
        Self { policy: RwLock::new(Ok(Arc::default())), asked: Shared::new(fresh), known: Mutex::default() }
    }

    fn policy(&self) -> Result<Arc<SignaturePolicy>, SourceError> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.clone().map_err(SourceError::NoPolicy)
    }

    fn knows(&self, package: &Digest, signers: &Signers) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(package.clone(), signers.digest().clone()))
    }

    fn remember(&self, package: &Digest, signers: &Signers) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert((package.clone(), signers.digest().clone()));
    }
}

impl Packages {
    /// From now on, this is what the platform demands; or why that is not known, and nothing is handed out.
    pub fn demand_signatures(&self, policy: Result<SignaturePolicy, String>) {
        let mut current = self.verified.policy.write().unwrap_or_else(PoisonError::into_inner);
        *current = policy.map(Arc::new);
    }

    /// The package with this content, if it has been downloaded and is known to be signed as it has to be. What a catalog
    /// demands besides the platform is in `signers`.
    pub fn stored(
        &self,
        reference: &PackageReference,
        digest: &Digest,
        format: &PackageFormat,
        signers: Option<&Arc<Signers>>,
    ) -> Option<StoredPackage> {
        let (scheme, home) = place(reference).ok()?;
        let demanded = self.demanded(scheme, &home, signers).ok()?;
        let is_verified = demanded.iter().all(|signers| self.verified.knows(digest, signers));
        if is_verified { self.store.get(digest, format).inspect(|_| self.found.note(true)) } else { None }
    }

    pub(crate) async fn verify(&self, resolved: &Resolved, access: &Access) -> Result<(), SourceError> {
        let (scheme, home) = match &resolved.location {
            Location::Https { home, .. } => ("https", home),
            Location::Oci { home, .. } => ("oci", home),
        };
        for signers in self.demanded(scheme, home, access.signers.as_ref())? {
            let (Location::Oci { manifest, .. }, Some(package)) = (&resolved.location, &resolved.digest)
            else {
                return Err(SourceError::Unverifiable { package: home.to_string() });
            };
            if self.verified.knows(package, &signers) {
                continue;
            }
            let question = (home.clone(), manifest.clone(), signers.clone(), access.clone());
            self.verified.asked.get(question, |_| self.look(home, manifest, &signers, access)).await?;
            self.verified.remember(package, &signers);
        }
        Ok(())
    }

    /// Looks for a signature in the registry. Those in the newer form cost more requests, so they come second.
    async fn look(
        &self,
        home: &Url,
        manifest: &Digest,
        signers: &Signers,
        access: &Access,
    ) -> Result<(), SourceError> {
        let mut session = self.registries.session(home, access)?;
        let simple = self.registries.simple_signatures(&mut session, manifest).await?;
        let Err(refusal) = judge(&simple, manifest, signers) else { return Ok(()) };
        let bundles = self.registries.bundles(&mut session, manifest).await?;
        let judged = judge(&bundles, manifest, signers).map_err(|other| refusal.or_closer(other));
        judged.map_err(|refusal| unverified(home, manifest, refusal))
    }

    fn demanded(
        &self,
        scheme: &str,
        home: &Url,
        further: Option<&Arc<Signers>>,
    ) -> Result<Vec<Arc<Signers>>, SourceError> {
        let platform = match self.verified.policy()?.demand(scheme, home) {
            Demand::Nothing => None,
            Demand::Signed(signers) => Some(signers),
        };
        Ok(platform.into_iter().chain(further.cloned()).collect())
    }
}

fn place(reference: &PackageReference) -> Result<(&'static str, Url), SourceError> {
    if reference.repository.starts_with("oci://") {
        Ok(("oci", Registries::home(reference)?))
    } else {
        Ok(("https", Repositories::home(reference)?))
    }
}

/// `registry.example/charts/hello@sha256:…`, as it is given to `cosign sign`.
fn unverified(home: &Url, manifest: &Digest, refusal: Refusal) -> SourceError {
    let plain = home.as_str().trim_start_matches("https://").trim_end_matches('/').replacen("/v2/", "/", 1);
    SourceError::Unverified { package: format!("{plain}@{manifest}"), refusal }
}
