//! What a release may do on a workload cluster.

use std::sync::Arc;

use chandler_api::extensions::{KindPattern, Scope};

use super::{
    DefaultAccount, Recorded, Rules, SourceUse, WorkloadAccount, matches_any, package_url, refused,
    selection::Tenancy,
};
use crate::{digest::InputDigest, failure::Failure, release::Desired};

/// What a package tool may do on a workload cluster. The default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// The account as which it reads and writes objects of the release. `None` means the user of the kubeconfig. Records of
    /// releases are written by that user in any case.
    pub account: Option<WorkloadAccount>,
    /// What the objects may be: every rule must allow an object.
    pub rules: Vec<ObjectRule>,
}

/// Which objects a release may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRule {
    /// Kind and name of the object with the rule.
    pub name: String,
    pub cluster_scoped: Vec<KindPattern>,
    pub denied: Vec<KindPattern>,
    /// `None` means all.
    pub namespaces: Option<Vec<String>>,
}

impl Boundary {
    /// Returns the capabilities that a package tool must have to keep it.
    pub fn needed_capabilities(&self) -> Vec<&'static str> {
        let impersonate = self.account.is_some().then_some("impersonate");
        let object_rules = (!self.rules.is_empty()).then_some("object-rules");
        impersonate.into_iter().chain(object_rules).collect()
    }
}

/// What is done with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseUse<'a> {
    /// What its object specifies is applied, compared or tested.
    Desired,
    /// An earlier revision is restored, or its removal is finished. It may have come from elsewhere.
    Rollback,
    /// What is installed from these inputs is removed. `None` means that they are not known.
    Removal { installed: Option<&'a InputDigest> },
}

impl ReleaseUse<'_> {
    /// Returns what is done with a release whose interrupted uninstall is finished before `inputs` are applied: that runs hooks of
    /// the revision that was installed from other inputs, which may have come from elsewhere.
    pub fn finishing_uninstall(
        recorded: &Recorded,
        installed: Option<&InputDigest>,
        inputs: &InputDigest,
    ) -> Self {
        let is_known = installed == Some(inputs) || recorded.is_of_platform(installed);
        if is_known { Self::Desired } else { Self::Rollback }
    }
}

impl Rules {
    /// Returns what a release may do on its cluster. The error names the AddonTenancy and the field that does not allow it. A
    /// removal is always allowed; the package tool refuses hooks that are not.
    pub fn boundary(
        &self,
        desired: &Desired,
        release_use: ReleaseUse<'_>,
        default: Option<&DefaultAccount>,
    ) -> Result<Boundary, Failure> {
        let (recorded, namespace) = (&desired.recorded, &desired.release.namespace);
        let requested = recorded.account.as_deref();
        let account = match release_use {
            ReleaseUse::Desired if self.is_exempt(desired) => return Ok(Boundary::default()),
            // It was installed without rules and account, so it is removed without them.
            ReleaseUse::Removal { installed } if recorded.is_of_platform(installed) => {
                return Ok(Boundary::default());
            }
            ReleaseUse::Removal { .. } => self.removal_account(requested, default, namespace),
            ReleaseUse::Desired | ReleaseUse::Rollback => {
                self.check_release(desired)?;
                self.account(requested, default, namespace)?
            }
        };
        Ok(Boundary { account, rules: self.object_rules() })
    }

    /// Returns whether a release that is applied with `boundary` is exempt, as an Extension of the platform, from rules or from an
    /// account that an earlier revision of it has: what others may have written must not become part of it.
    pub fn exempts(&self, desired: &Desired, boundary: &Boundary, default: Option<&DefaultAccount>) -> bool {
        let is_free = |boundary: &Boundary| *boundary == Boundary::default();
        // A rollback is never exempt.
        let rollback = || self.boundary(desired, ReleaseUse::Rollback, default);
        desired.recorded.platform_extension.is_some()
            && is_free(boundary)
            && !rollback().is_ok_and(|boundary| is_free(&boundary))
    }

    /// Checks the address that a package is downloaded from, which the index of its repository names.
    pub fn check_archive(&self, desired: &Desired, url: &str) -> Result<(), Failure> {
        let catalog = desired.access.catalog.as_ref();
        if self.is_exempt(desired) || catalog.is_some_and(|catalog| catalog.scope == Scope::Platform) {
            return Ok(());
        }
        self.check_source(SourceUse::Url(url))
    }

    /// Checks where a release comes from and where it goes. The error names the AddonTenancy and its field.
    pub fn check_release(&self, desired: &Desired) -> Result<(), Failure> {
        self.check_release_source(desired)?;
        self.check_target(&desired.release.namespace)
    }

    /// Returns whether no other rule applies: the release object installs an Extension of the platform as it is published, and all
    /// AddonTenancies allow it.
    fn is_exempt(&self, desired: &Desired) -> bool {
        let Some(name) = &desired.recorded.platform_extension else { return false };
        self.0.iter().all(|tenancy| {
            tenancy.spec.platform_extensions.as_ref().is_none_or(|allowed| matches_any(allowed, name))
        })
    }

    fn check_release_source(&self, desired: &Desired) -> Result<(), Failure> {
        let (access, package) = (&desired.access, &desired.package);
        match (&access.catalog, &access.folder) {
            (Some(catalog), _) if catalog.scope == Scope::Platform => {
                self.check_source(SourceUse::PlatformCatalog(&catalog.name))
            }
            (_, Some(folder)) if folder.source.scope == Scope::Platform => {
                let catalog = desired.recorded.platform_catalog.as_deref();
                self.check_source(SourceUse::PlatformSource { name: &folder.source.name, catalog })
            }
            // The files of a Source in the same namespace are fetched only from an allowed URL.
            (_, Some(_)) => Ok(()),
            _ => {
                let url = package_url(&package.repository, &package.name);
                self.check_source(SourceUse::Url(&url))
            }
        }
    }

    fn check_target(&self, namespace: &str) -> Result<(), Failure> {
        for tenancy in &self.0 {
            let Some(allowed) = &tenancy.spec.target_namespaces else { continue };
            if !matches_any(allowed, namespace) {
                let what = format!("releases in namespace {namespace} of workload clusters");
                return Err(refused(&tenancy.name, &what, "spec.targetNamespaces", "does not list it"));
            }
        }
        Ok(())
    }

    fn object_rules(&self) -> Vec<ObjectRule> {
        let rule = |tenancy: &Arc<Tenancy>| ObjectRule {
            name: format!("AddonTenancy {}", tenancy.name),
            cluster_scoped: tenancy.spec.kinds.cluster_scoped.clone(),
            denied: tenancy.spec.kinds.denied.clone(),
            namespaces: tenancy.spec.target_namespaces.clone(),
        };
        self.0.iter().map(rule).collect()
    }
}
